# SPDX-License-Identifier: Apache-2.0
"""The source's stream by QEMU's own commands, where libvirt fails. No policy.

libvirt keeps a migration whose post-copy was resumed here as one that nobody attends to and finishes it on
both sides when QEMU says that it completed, as it does with one that goes on while its daemon restarts.
"""

from __future__ import annotations

import json
from typing import Any, Final

import libvirt_qemu

from launcher.errors import MigrationFailed
from launcher.hypervisor.calls import Calls, LaneName
from launcher.hypervisor.port import qemu_uri

CANCELLING: Final = "cancelling"
"""QEMU's word (MigrationStatus) for a stream that is being cancelled."""


class StreamCalls:
    """The part of port.Hypervisor that goes past libvirt."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def stream_status(self, uuid: str) -> str:
        """QEMU's word for the state of the migration (``MigrationStatus`` of its QMP schema)."""
        return str((await self._ask(uuid, "query-migrate")).get("status", ""))

    async def resume_stream(self, uuid: str, migrate_uri: str) -> None:
        """Have the source's QEMU connect and go on; returns at once. MigrationFailed when it cannot."""
        await self._ask(uuid, "migrate", uri=qemu_uri(migrate_uri), resume=True)

    async def end_cancelled(self, uuid: str) -> None:
        """Wake a stream that was cancelled and waits all the same to be let go on to the switchover.

        QEMU (seen with 7.2) misses a cancel that comes after it stopped the guest and before it says that it
        waits: it is "cancelling" for ever, with the guest stopped. Then the word to go on only ends it.
        MigrationFailed when it is in any other.
        """
        await self._ask(uuid, "migrate-continue", state=CANCELLING)

    async def _ask(self, uuid: str, command: str, **arguments: object) -> dict[str, Any]:
        text = json.dumps({"execute": command, "arguments": arguments})
        said = await self._calls.on_domain(
            uuid,
            lambda domain: str(libvirt_qemu.qemuMonitorCommand(domain, text, 0)),
            what=f"QEMU's {command}",
            lane=LaneName.CONTROL,
        )
        answer: dict[str, Any] = json.loads(said)
        if "error" in answer:
            raise MigrationFailed(f"QEMU refuses {command}: {answer['error'].get('desc', '')}")
        found: dict[str, Any] = answer.get("return", {})
        return found
