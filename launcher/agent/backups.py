# SPDX-License-Identifier: Apache-2.0
"""What is asked about copies of running guests: freezes, snapshots, backups. Implements ``BackupPort``.

A snapshot is a full copy beside the image, made while the guest writes on, not a chain of overlays: the image
of a claim stays the newest there is, so nothing is merged back, and no crash can strand what was written.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

from launcher.agent import backup_rules as rules
from launcher.agent.backup_records import ENDED, CopyKind, CopyRecord
from launcher.agent.backup_runs import CopyRuns
from launcher.agent.checkpoints import Checkpoints
from launcher.agent.instances import Instances
from launcher.agent.machine import Services
from launcher.agent.memory_dumps import MemoryDumps
from launcher.agent.port import BackupRequest, CheckpointView, ClaimBinding, CopiedVolumeView, CopyView
from launcher.agent.quiesce import Quiesce, require_running
from launcher.agent.settings import plan_settings
from launcher.agent.supervisor import Supervisor
from launcher.errors import AlreadyExists, NotFound, WrongPhase
from launcher.host.config import Config
from launcher.host.logging import get
from launcher.hypervisor.port import Event
from launcher.plan.paths import instance_paths
from launcher.spec.model import VirtualMachineInstance
from launcher.storage import copies

log = get(__name__)

END_TIMEOUT_S: Final = 25.0
"""How long a caller waits for the end of a job; a client's calls end after 30 s by default."""
SNAPSHOT: Final = "snapshot"
BACKUP: Final = "backup"


class Backups:
    """The copies of one node; ``run`` is its task."""

    def __init__(
        self, config: Config, services: Services, instances: Instances, supervisor: Supervisor
    ) -> None:
        self._snapshots = f"{config.state_dir}/snapshots"
        self._services = services
        self._instances = instances
        self._quiesce = Quiesce(services, instances, supervisor)
        self._runs = CopyRuns(services, instances, supervisor, self._quiesce)
        self._checkpoints = Checkpoints(services, self._runs)
        self._plan_settings = plan_settings(config)
        self._dumps = MemoryDumps(services, instances, supervisor)

    async def load(self) -> None:
        """Take up what the store remembers."""
        await self._runs.load()

    async def run(self) -> None:
        """Thaw what is due, for ever."""
        await self._quiesce.run()

    def on_event(self, event: Event) -> None:
        """What libvirt tells."""
        self._runs.on_event(event)
        self._dumps.on_event(event)

    async def freeze(self, namespace: str, name: str, *, unfreeze_after_s: float) -> None:
        """See ``BackupPort``."""
        await self._quiesce.freeze(namespace, name, unfreeze_after_s=unfreeze_after_s)

    async def unfreeze(self, namespace: str, name: str) -> None:
        """See ``BackupPort``."""
        await self._quiesce.unfreeze(namespace, name)

    async def create_snapshot(
        self, namespace: str, vmi: str, *, name: str, volumes: tuple[str, ...], quiesce: bool
    ) -> CopyView:
        """See ``BackupPort``.

        Raises:
            NotFound, WrongPhase, Conflict: no such instance, not running, busy.
            InvalidRequest: the name, or a volume that cannot be copied. AlreadyExists: the name is taken.
            Exhausted: no room for a full copy. HostUnsupported, HypervisorError: libvirt refuses.
        """
        machine = self._instances.find(namespace, vmi)
        require_running(machine)
        created = self._services.clock.now()
        name = rules.copy_name(name, vmi, created)
        self._require_new(SNAPSHOT, namespace, vmi, name)
        disks = rules.snapshot_disks(machine.record, volumes)
        copy = rules.snapshot_record(machine.record, disks, name=name, created=created, root=self._snapshots)
        images = tuple(map(Path, rules.images(disks)))
        await asyncio.to_thread(copies.require_room, Path(self._snapshots).parent, images)
        return view(await self._runs.begin(machine, copy, quiesce=quiesce))

    async def list_snapshots(self, namespace: str | None, vmi: str) -> tuple[CopyView, ...]:
        """See ``BackupPort``."""
        return self._list(SNAPSHOT, namespace, vmi)

    async def delete_snapshot(self, namespace: str, vmi: str, name: str) -> None:
        """See ``BackupPort``.

        Raises:
            NotFound: there is none. TimedOut: its job does not end. StorageError: its files stay.
        """
        copy = self._find(SNAPSHOT, namespace, vmi, name)
        if copy.phase not in ENDED:
            copy = await self._runs.end(copy, abort=True, timeout_s=END_TIMEOUT_S)
        await asyncio.to_thread(copies.remove_copy_directory, Path(copy.directory))
        await self._runs.forget(copy)
        log.info(f"removed snapshot {name}", vmi=copy.instance, uid=copy.uid)

    async def begin_backup(self, namespace: str, vmi: str, request: BackupRequest) -> CopyView:
        """See ``BackupPort``.

        Raises:
            NotFound: no such instance or checkpoint. WrongPhase: not running, or nothing is tracked.
            Conflict: busy, or the checkpoint is broken: a full backup is needed.
            InvalidRequest: mode, directory, volumes. AlreadyExists: the name is taken.
            Exhausted: no room for a full copy. HostUnsupported, HypervisorError: libvirt refuses.
        """
        machine = self._instances.find(namespace, vmi)
        require_running(machine)
        created = self._services.clock.now()
        name = rules.copy_name(request.name, vmi, created)
        self._require_new(BACKUP, namespace, vmi, name)
        request = rules.directed(machine.record, request)
        disks = rules.tracked_disks(machine.record, request.volumes)
        paths = instance_paths(self._plan_settings, machine.record.uid)
        copy = rules.backup_record(machine.record, disks, request, name=name, created=created, paths=paths)
        if request.incremental:
            await self._checkpoints.require(copy)
        elif request.mode == "push":
            images = tuple(map(Path, rules.images(disks)))
            await asyncio.to_thread(copies.require_room, Path(request.directory), images)
        return view(await self._runs.begin(machine, copy, quiesce=request.quiesce))

    async def list_backups(self, namespace: str | None, vmi: str) -> tuple[CopyView, ...]:
        """See ``BackupPort``."""
        return self._list(BACKUP, namespace, vmi)

    async def end_backup(self, namespace: str, vmi: str, name: str, *, abort: bool) -> CopyView:
        """See ``BackupPort``.

        Raises:
            NotFound: there is none. WrongPhase: one that is pushed ends by itself.
            TimedOut: its job does not end.
        """
        copy = self._find(BACKUP, namespace, vmi, name)
        if copy.job.mode == "push" and not abort and copy.phase not in ENDED:
            raise WrongPhase(f"backup {name} is pushed: it ends by itself", hint="abort it, or wait for it")
        return view(await self._runs.end(copy, abort=abort, timeout_s=END_TIMEOUT_S))

    async def list_checkpoints(self, namespace: str | None, vmi: str) -> tuple[CheckpointView, ...]:
        """See ``BackupPort``."""
        return tuple(
            CheckpointView(
                name=found.name,
                namespace=found.namespace,
                vmi=found.vmi,
                created=found.created,
                volumes=found.volumes,
                invalid=found.invalid,
            )
            for found in self._runs.checkpoints()
            if namespace in (None, found.namespace) and vmi in ("", found.vmi)
        )

    async def delete_checkpoint(self, namespace: str, vmi: str, name: str) -> None:
        """See ``BackupPort``.

        Raises:
            NotFound: there is none. Conflict: a job of the domain is under way.
        """
        machine = self._instances.find(namespace, vmi)
        require_running(machine)
        await self._checkpoints.delete(machine.record.uid, name)

    async def dump_memory(
        self, namespace: str, vmi: str, *, claim: str, binding: ClaimBinding | None, volume: str = ""
    ) -> VirtualMachineInstance:
        """See ``BackupPort``."""
        await self._dumps.begin(namespace, vmi, claim, binding, volume=volume)
        return await self._instances.get(namespace, vmi)

    async def forget_memory_dump(self, namespace: str, vmi: str) -> VirtualMachineInstance:
        """See ``BackupPort``."""
        await self._dumps.forget(namespace, vmi)
        return await self._instances.get(namespace, vmi)

    def _list(self, kind: CopyKind, namespace: str | None, vmi: str) -> tuple[CopyView, ...]:
        return tuple(
            view(copy)
            for copy in self._runs.copies()
            if copy.kind == kind and namespace in (None, copy.namespace) and vmi in ("", copy.vmi)
        )

    def _find(self, kind: CopyKind, namespace: str, vmi: str, name: str) -> CopyRecord:
        for copy in self._runs.copies():
            if (copy.kind, copy.namespace, copy.vmi, copy.name) == (kind, namespace, vmi, name):
                return copy
        raise NotFound(kind, f"{namespace}/{vmi}/{name}")

    def _require_new(self, kind: CopyKind, namespace: str, vmi: str, name: str) -> None:
        try:
            present = self._find(kind, namespace, vmi, name)
        except NotFound:
            return
        raise AlreadyExists(kind, f"{namespace}/{vmi}/{name}", hint=f"it is of {present.created}")


def view(copy: CopyRecord) -> CopyView:
    """A copy as the API shows it."""
    server = copy.job.server
    endpoint = "" if server is None else server.socket or f"{server.address}:{server.port}"
    return CopyView(
        kind=copy.kind,
        name=copy.name,
        namespace=copy.namespace,
        vmi=copy.vmi,
        vmi_uid=copy.uid,
        phase=copy.phase,
        message=copy.message,
        mode=copy.job.mode,
        indications=copy.indications,
        volumes=tuple(
            CopiedVolumeView(
                volume=volume.volume,
                target=volume.target,
                file=volume.file,
                export=volume.export,
                bitmap=volume.bitmap,
            )
            for volume in copy.volumes
        ),
        incremental=copy.job.incremental,
        checkpoint=copy.checkpoint,
        endpoint=endpoint,
        created=copy.created,
        ended=copy.ended,
        processed=copy.processed,
        total=copy.total,
    )
