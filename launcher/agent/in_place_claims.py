# SPDX-License-Identifier: Apache-2.0
"""The claims that volumes go to under a guest that stays: looked at, made, let go of. Copies nothing."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection

from launcher.agent.apart import require_apart
from launcher.agent.departure import moved_disks
from launcher.agent.instances import Instances
from launcher.agent.machine import Machine, Services
from launcher.agent.moved_volumes import objections, same_place, spots
from launcher.agent.records import InstanceRecord
from launcher.agent.volume_moves import arranged, moved
from launcher.errors import LauncherError
from launcher.migration.disk_copy import DiskCopy
from launcher.migration.peer import MovedDisk
from launcher.migration.reasons import unfit
from launcher.plan.steps import AnyStep
from launcher.storage.destination import fit


class InPlaceClaims:
    """The old and the new claims of one instance."""

    def __init__(self, machine: Machine, services: Services, instances: Instances) -> None:
        self._machine = machine
        self._services = services
        self._instances = instances

    async def refusals(self) -> tuple[str, ...]:
        """Why nothing is copied; none: it may begin.

        Raises:
            Conflict: another instance uses a claim. HypervisorUnavailable: libvirt is away.
        """
        record = self._machine.record
        domain = await self._services.hypervisor.domain(record.plan.identity.uuid)
        why = unfit(domain.state, domain.reason)
        if why:
            return (why,)
        disks = await moved_disks(record, self._services.hypervisor)
        if not disks:
            return ("no volume is to move",)
        after = await self._after(record, [disk.volume for disk in disks])
        others = (other.record for other in self._instances.machines() if not other.ended)
        await require_apart(after, others)
        return (*await objections(after, disks), *await asyncio.to_thread(same_place, record, after, disks))

    async def make(self) -> tuple[DiskCopy, ...]:
        """Bring the destinations to their sizes, journalled; the copies that are to be."""
        record = self._machine.record
        disks = await moved_disks(record, self._services.hypervisor)
        after = await self._after(record, [disk.volume for disk in disks])
        slices = {spot.volume: await fit(spot) for spot in spots(after, disks)}
        await self._services.resources.extend(record, _steps(after, disks))
        old = {disk.name: disk for disk in record.plan.devices.disks}
        new = {disk.name: disk for disk in after.plan.devices.disks}
        copies = []
        for disk in disks:
            source, destination = old[disk.volume].source, new[disk.volume].source
            if source is not None and destination is not None:
                copies.append(
                    DiskCopy(
                        volume=disk.volume,
                        target=old[disk.volume].target,
                        source=source.path,
                        destination=destination.path,
                        block=destination.block,
                        bytes=disk.bytes,
                        slice=slices[disk.volume],
                    )
                )
        return tuple(copies)

    async def let_go(self, copies: Collection[DiskCopy]) -> None:
        """Undo what was made for ``copies``, which are not used."""
        gone = tuple(MovedDisk(volume=copy.volume, bytes=copy.bytes) for copy in copies)
        with contextlib.suppress(LauncherError):  # A step in the journal more costs nothing.
            after = await self._after(self._machine.record, [copy.volume for copy in copies])
            await self._services.resources.drop(_steps(after, gone))

    async def settle(self, names: frozenset[str]) -> None:
        """The guest writes to the new claims of ``names``: the record has them, the old are let go of."""
        record = self._machine.record
        site = await self._instances.site(record.manifest, record.uid)
        old = tuple(s for s in record.plan.steps if getattr(s, "volume", None) in names)
        waiting = any(move.name in names for move in record.moving)
        await self._machine.update(lambda present: moved(present, names, site), wake=False)
        if waiting:
            await self._services.resources.drop(old)

    async def _after(self, record: InstanceRecord, names: Collection[str]) -> InstanceRecord:
        site = await self._instances.site(record.manifest, record.uid)
        return moved(record, names, site)


def _steps(after: InstanceRecord, disks: Collection[MovedDisk]) -> tuple[AnyStep, ...]:
    """What is made for the copies of ``disks``; ``after`` has the new claims."""
    sizes = {disk.volume: disk.bytes for disk in disks}
    return arranged([s for s in after.plan.steps if getattr(s, "volume", None) in sizes], sizes)
