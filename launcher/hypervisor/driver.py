# SPDX-License-Identifier: Apache-2.0
"""port.Hypervisor on libvirt: puts the link, the lanes and the calls together. No policy, no libvirt call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from launcher.hypervisor.agent import AgentCalls
from launcher.hypervisor.backup import BackupCalls
from launcher.hypervisor.blocks import BlockCalls
from launcher.hypervisor.calls import Calls
from launcher.hypervisor.domains import DomainCalls
from launcher.hypervisor.hardware import HardwareCalls
from launcher.hypervisor.launch import LaunchCalls
from launcher.hypervisor.link import Link
from launcher.hypervisor.migrate import JobCalls
from launcher.hypervisor.port import Event
from launcher.hypervisor.probe import HostCalls
from launcher.hypervisor.stream import StreamCalls
from launcher.hypervisor.usage import UsageCalls

MIGRATION_THREADS: Final = 8


class LibvirtHypervisor(
    DomainCalls,
    HardwareCalls,
    BlockCalls,
    JobCalls,
    StreamCalls,
    HostCalls,
    LaunchCalls,
    UsageCalls,
    AgentCalls,
    BackupCalls,
):
    """The libvirtd at ``uri``, for use from one event loop.

    ``call_timeout_s`` is the deadline of a call that has none of its own (start, shutdown, destroy,
    migrate); ``migrations`` how many may run at once.
    """

    def __init__(
        self, uri: str, *, call_timeout_s: float = 30.0, migrations: int = MIGRATION_THREADS
    ) -> None:
        self._link = Link(uri, open_timeout_s=call_timeout_s)
        super().__init__(Calls(self._link, timeout_s=call_timeout_s, migrations=migrations))

    @property
    def connected(self) -> bool:
        """True while there is a connection."""
        return self._link.connected

    def subscribe(self, listener: Callable[[Event], None]) -> Callable[[], None]:
        """Call ``listener`` on the event loop for each event; returns the function that unsubscribes."""
        return self._link.subscribe(listener)

    async def start(self) -> None:
        """Begin connecting, and go on for ever; ConnectionEvents tell how it goes."""
        self._link.start()

    async def close(self) -> None:
        """Disconnect. Domains and migrations go on; calls in progress end with errors."""
        await self._link.close()
        self._calls.close()
