# SPDX-License-Identifier: Apache-2.0
"""Downward metrics: keeps the metrics disks of guests fresh and their channels answered. Changes no record.

One task looks at all instances. Whatever fails for one is tried again at the next look, so a guest that was
adopted, migrated here or taken up after a restart of the agent is served without further ado.
"""

from __future__ import annotations

import asyncio
from datetime import datetime
from pathlib import Path
from typing import Final

from launcher.agent import lifecycle
from launcher.agent.hostfacts import HostFacts
from launcher.agent.instances import Instances
from launcher.agent.machine import Machine, Services
from launcher.agent.supervisor import Supervisor
from launcher.errors import LauncherError
from launcher.guest import metrics_channel
from launcher.guest.metrics import NOTHING, Host, metrics_xml
from launcher.host import usage, vhostmd
from launcher.host.logging import get
from launcher.plan.devices.channel import DOWNWARD_METRICS
from launcher.plan.versions import release

log = get(__name__)

REFRESH_S: Final = 5.0
"""Between two contents of a metrics disk, as KubeVirt has it; also the longest that a new guest waits."""


class DownwardMetrics:
    """Serves the instances of one node; ``run`` is its task."""

    def __init__(
        self, services: Services, instances: Instances, facts: HostFacts, supervisor: Supervisor
    ) -> None:
        self._services = services
        self._instances = instances
        self._facts = facts
        self._supervisor = supervisor
        self._channels: dict[str, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Look after all guests, for ever."""
        while True:
            self._channels = {uid: task for uid, task in self._channels.items() if not task.done()}
            for machine in self._instances.machines():
                if _is_served(machine):
                    self._open_channel(machine)
                    await self._fill_disks(machine)
            await asyncio.sleep(REFRESH_S)

    def _open_channel(self, machine: Machine) -> None:
        record = machine.record
        socket = next(
            (c.socket for c in record.plan.devices.channels if c.name == DOWNWARD_METRICS and c.socket), None
        )
        if socket is not None and record.uid not in self._channels:
            self._channels[record.uid] = self._supervisor.spawn(
                self._serve(machine, socket), name=f"downward metrics of {record.key}"
            )

    async def _serve(self, machine: Machine, socket: str) -> None:
        try:
            await metrics_channel.serve(socket, lambda: self._report(machine))
        except OSError as error:
            log.debug("no channel for downward metrics yet", vmi=machine.record.key, why=str(error))

    async def _fill_disks(self, machine: Machine) -> None:
        disks = [d for d in machine.record.plan.devices.disks if d.kind == "downwardMetrics" and d.source]
        if not disks:
            return
        content = await self._report(machine)
        for disk in disks:
            assert disk.source is not None, "only disks with a source are listed"
            try:
                await asyncio.to_thread(vhostmd.write, Path(disk.source.path), content)
            except LauncherError as error:
                log.warning(f"metrics disk not written: {error}", vmi=machine.record.key)

    async def _report(self, machine: Machine) -> bytes:
        """The document now; one that says so when libvirt does not answer."""
        try:
            guest = await self._services.hypervisor.usage(machine.record.plan.identity.uuid)
            facts = await self._facts.get()
            host = await asyncio.to_thread(usage.look)
        except LauncherError as error:
            log.debug("no downward metrics", vmi=machine.record.key, why=str(error))
            return NOTHING
        name = Host(name=self._services.node, qemu=f"QEMU {release(facts.qemu_version)}")
        now = datetime.fromisoformat(self._services.clock.now())
        return metrics_xml(name, host, guest, unix_time=int(now.timestamp()))


def _is_served(machine: Machine) -> bool:
    return (
        machine.record.phase == "Running"
        and not machine.record.incoming
        and lifecycle.alive(machine.observed)
    )
