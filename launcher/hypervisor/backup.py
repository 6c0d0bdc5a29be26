# SPDX-License-Identifier: Apache-2.0
"""Calls about copies of a running domain: backup jobs, checkpoints, memory dumps. One call each, no policy.

libvirt has backup jobs since 6.0, and with any QEMU of today since 7.2; their end is told by a
JobCompletedEvent, and ``JobCalls.abort_job`` ends one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, cast

import libvirt

from launcher.errors import NotFound
from launcher.hypervisor.calls import Calls, LaneName

BEGIN_TIMEOUT_S: Final = 60.0
"""libvirt makes the target files and a job for each disk; the guest may be frozen meanwhile."""

_REDEFINE: Final = (
    libvirt.VIR_DOMAIN_CHECKPOINT_CREATE_REDEFINE | libvirt.VIR_DOMAIN_CHECKPOINT_CREATE_REDEFINE_VALIDATE
)


class BackupCalls:
    """The part of port.Hypervisor about copies of disks and memory."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def begin_backup(self, uuid: str, xml: str, checkpoint_xml: str = "") -> None:
        """Begin a backup job of the moment of this call, and make a checkpoint of that moment.

        Raises:
            Conflict: another job of the domain is under way.
            WrongPhase: the domain does not run. HostUnsupported: a disk cannot be copied so.
        """
        # The binding takes None for "no checkpoint"; its annotation says str.
        checkpoint: Any = checkpoint_xml or None
        await self._calls.on_domain(
            uuid,
            lambda domain: domain.backupBegin(xml, checkpoint, 0),
            what="begin backup",
            lane=LaneName.CHANGE,
            timeout_s=BEGIN_TIMEOUT_S,
        )

    async def backup_xml(self, uuid: str) -> str:
        """The backup job under way as libvirt knows it; empty without one."""
        try:
            return await self._calls.on_domain(
                uuid, lambda domain: str(domain.backupGetXMLDesc(0)), what="read backup", lane=LaneName.QUERY
            )
        except NotFound as error:
            if error.kind == "domain":
                raise
            return ""

    async def checkpoints(self, uuid: str) -> frozenset[str]:
        """Names of the checkpoints that libvirt knows."""
        return await self._calls.on_domain(
            uuid,
            lambda domain: frozenset(found.getName() for found in domain.listAllCheckpoints(0)),
            what="list checkpoints",
            lane=LaneName.QUERY,
        )

    async def checkpoint_xml(self, uuid: str, name: str) -> str:
        """A checkpoint, without the domain that libvirt keeps with it. Raises NotFound."""
        flags = libvirt.VIR_DOMAIN_CHECKPOINT_XML_NO_DOMAIN
        return await self._calls.on_domain(
            uuid,
            lambda domain: str(domain.checkpointLookupByName(name, 0).getXMLDesc(flags)),
            what="read checkpoint",
            lane=LaneName.QUERY,
        )

    async def redefine_checkpoint(self, uuid: str, xml: str) -> None:
        """Make a checkpoint known again that libvirt forgot; its bitmaps must be in the images.

        Raises:
            NotFound, WrongPhase, HypervisorError: they are not, or are broken.
        """
        await self._calls.on_domain(
            uuid,
            lambda domain: domain.checkpointCreateXML(xml, _REDEFINE),
            what="redefine checkpoint",
            lane=LaneName.CHANGE,
        )

    async def delete_checkpoint(self, uuid: str, name: str) -> None:
        """Forget a checkpoint: what changed since goes to the one before it. None there is a success."""
        try:
            await self._calls.on_domain(
                uuid,
                lambda domain: domain.checkpointLookupByName(name, 0).delete(0),
                what="delete checkpoint",
                lane=LaneName.CHANGE,
            )
        except NotFound as error:
            if error.kind == "domain":
                raise

    async def dump_memory(self, uuid: str, path: Path, *, timeout_s: float) -> None:
        """Write the guest's memory to the new file ``path`` as an ELF core; the guest waits that long.

        When the deadline passes the dump goes on; ``abort_job`` ends it.

        Raises:
            TimedOut: ``timeout_s`` passed. Conflict: another job of the domain is under way.
            WrongPhase: it does not run. HypervisorError: it could not be written.
        """
        kind = libvirt.VIR_DOMAIN_CORE_DUMP_FORMAT_RAW
        await self._calls.on_domain(
            uuid,
            lambda domain: cast("Any", domain).coreDumpWithFormat(
                str(path), kind, libvirt.VIR_DUMP_MEMORY_ONLY
            ),
            what="dump memory",
            lane=LaneName.DUMP,
            timeout_s=timeout_s,
        )
