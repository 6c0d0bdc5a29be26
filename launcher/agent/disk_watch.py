# SPDX-License-Identifier: Apache-2.0
"""Looks at the volumes of a guest that runs: their sizes, and what an I/O error is about. Decides nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Generic, TypeVar

from launcher.agent.growth import DiskSize, growing
from launcher.agent.io_errors import NO_SPACE, Trouble
from launcher.agent.records import InstanceRecord
from launcher.agent.resources import Resources
from launcher.agent.utility_volumes import Folder, FolderState, folders
from launcher.domain.read import DomainView
from launcher.errors import HypervisorUnavailable, LauncherError, StorageError
from launcher.hypervisor.port import DomainRecord, DomainState, Hypervisor
from launcher.storage.folders import require_folder
from launcher.storage.health import fault

T = TypeVar("T")
PROBE_TIMEOUT_S = 10.0
"""Storage that does not answer that long has not come back."""
_SILENT = "its storage does not answer"


class _OneAtATime(Generic[T]):
    """Looks that may hang (a server that is away): the next one begins only when the last one ended."""

    def __init__(self) -> None:
        self._task: asyncio.Task[T] | None = None

    async def run(self, look: Coroutine[Any, Any, T]) -> T | None:
        """What ``look`` found; None: it, or an earlier one, has not ended in time."""
        if self._task is None:
            self._task = asyncio.create_task(look, name="look at volumes")
        else:
            look.close()
        done, _ = await asyncio.wait({self._task}, timeout=PROBE_TIMEOUT_S)
        if not done:
            return None
        task, self._task = self._task, None
        return task.result()


class DiskWatch:
    """The volumes of one instance. What it remembers, a restart may forget."""

    def __init__(self, hypervisor: Hypervisor, resources: Resources) -> None:
        self._hypervisor = hypervisor
        self._resources = resources
        self._guest: dict[str, int] = {}
        self._measuring = _OneAtATime[tuple[DiskSize, ...]]()
        self._probing = _OneAtATime[tuple[Trouble, ...]]()
        self.sizes: tuple[DiskSize, ...] = ()
        self._looking = _OneAtATime[tuple[FolderState, ...]]()
        self.troubles: tuple[Trouble, ...] = ()
        self.folders: tuple[FolderState, ...] = ()

    def forget(self, name: str) -> None:
        """Ask libvirt again how large the guest sees the disk."""
        self._guest.pop(name, None)

    async def look(
        self, record: InstanceRecord, observed: DomainRecord | None, live: DomainView | None
    ) -> None:
        """Look at all volumes; ``observed`` is the domain if a QEMU runs.

        Raises:
            HypervisorUnavailable: there is no connection to libvirt.
        """
        if observed is not None and not record.incoming:
            self.folders = await self._look_at(folders(record))
        if observed is None or record.incoming or record.outgoing:
            self._guest.clear()
            self.sizes, self.troubles = (), ()
            return
        try:
            if growing(record):
                self.sizes = await self._measuring.run(self._measure(record, live)) or self.sizes
            paused = observed.state is DomainState.PAUSED and observed.reason == "ioerror"
            self.troubles = await self._probe(record) if paused else ()
        except HypervisorUnavailable:
            raise
        except (LauncherError, TimeoutError):
            return  # What is wrong shows when the guest uses it, and at the next look.

    async def _look_at(self, wanted: tuple[Folder, ...]) -> tuple[FolderState, ...]:
        if not wanted:
            return ()
        found = await self._looking.run(asyncio.to_thread(_folder_states, wanted))
        if found is not None:
            return found
        return tuple(FolderState(folder=f, message=f"{f.path}: {_SILENT}") for f in wanted)

    async def _measure(self, record: InstanceRecord, live: DomainView | None) -> tuple[DiskSize, ...]:
        found, uuid = [], record.plan.identity.uuid
        there = {disk.alias for disk in live.disks} if live is not None else None
        sliced = {disk.alias: disk.slice for disk in live.disks if disk.slice} if live is not None else {}
        for disk, step in growing(record):
            if disk.source is None or (there is not None and disk.name not in there):
                self.forget(disk.name)
                continue
            if disk.name in sliced:  # QEMU does not let such a disk grow: the next guest has all of it.
                size = sliced[disk.name]
                found.append(DiskSize(name=disk.name, guest=size, possible=size))
                continue
            possible, short = await self._resources.possible_size(disk.source.path, step)
            if disk.name not in self._guest:
                self._guest[disk.name] = await self._hypervisor.disk_size(uuid, disk.target)
            size = self._guest[disk.name]
            found.append(DiskSize(name=disk.name, guest=size, possible=possible, short=short))
        return tuple(found)

    async def _probe(self, record: InstanceRecord) -> tuple[Trouble, ...]:
        found = await self._probing.run(self._examine(record))
        if found is not None:
            return found
        named = self.troubles or (Trouble(name="", path="", kind=""),)
        return tuple(Trouble(name=t.name, path=t.path, kind=t.kind, still=_SILENT) for t in named)

    async def _examine(self, record: InstanceRecord) -> tuple[Trouble, ...]:
        errors = await self._hypervisor.disk_errors(record.plan.identity.uuid)
        found = []
        for disk in (*record.plan.devices.disks, *(entry.disk for entry in record.leaving)):
            kind = errors.get(disk.target)
            if kind is None or disk.source is None:
                continue
            path, block = disk.source.path, disk.source.block
            still = await asyncio.to_thread(fault, path, block=block, room=kind == NO_SPACE)
            found.append(Trouble(name=disk.name, path=path, kind=kind, still=still))
        return tuple(found)


def _folder_states(wanted: tuple[Folder, ...]) -> tuple[FolderState, ...]:
    return tuple(map(_folder_state, wanted))


def _folder_state(folder: Folder) -> FolderState:
    try:
        require_folder(folder.name, folder.path, writes=folder.writes)
    except StorageError as error:
        return FolderState(folder=folder, reason=error.problem, message=error.message)
    return FolderState(folder=folder)
