# SPDX-License-Identifier: Apache-2.0
"""Carries out copies of running domains: begins jobs, follows them, judges their end, also after a restart.

What there may be is written down first: the record of the copy, then the claim on the domain, then files,
then the job. The guest goes on writing to its own images all the while; a copy that fails costs it nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from launcher.agent.backup_records import ENDED, CheckpointRecord, CopyRecord
from launcher.agent.backup_rules import MOST_CHECKPOINTS, backup_status
from launcher.agent.instances import Instances
from launcher.agent.machine import Machine, Services
from launcher.agent.quiesce import ONLINE, Quiesce
from launcher.agent.records import DomainJob, InstanceRecord
from launcher.agent.supervisor import Supervisor
from launcher.agent.utility_volumes import require_present
from launcher.domain.backup import backup_xml, checkpoint_xml
from launcher.errors import (
    AlreadyExists,
    Conflict,
    HypervisorUnavailable,
    LauncherError,
    NotFound,
    TimedOut,
    WrongPhase,
)
from launcher.host.logging import get
from launcher.hypervisor.port import ConnectionEvent, Event, JobCompletedEvent, JobStats, LifecycleEvent
from launcher.storage import copies

log = get(__name__)

COPIES: Final = "copy"
CHECKPOINTS: Final = "checkpoint"
"""Kinds of documents in the store."""
POLL_S: Final = 2.0
"""Between two looks at a job, if no event tells of its end."""
BACKUP: Final = "backup"
_UNDER_WAY: Final = ("bounded", "unbounded")
_NO_AGENT_ASKED: Final = (ONLINE,)


class CopyRuns:
    """The copies of one node, under way and ended, and the checkpoints that they made."""

    def __init__(
        self, services: Services, instances: Instances, supervisor: Supervisor, quiesce: Quiesce
    ) -> None:
        self._services = services
        self._instances = instances
        self._supervisor = supervisor
        self._quiesce = quiesce
        self._copies: dict[str, CopyRecord] = {}
        self._checkpoints: dict[str, CheckpointRecord] = {}
        self._followers: dict[str, asyncio.Task[None]] = {}
        self._beginning: set[asyncio.Task[Any]] = set()
        self._look = asyncio.Event()
        self._changed = asyncio.Condition()

    async def load(self) -> None:
        """Read what the store remembers; what is under way is taken up when libvirt answers."""
        store = self._services.store
        for blob in (await store.documents(COPIES)).values():
            copy = msgspec.json.decode(blob, type=CopyRecord)
            self._copies[copy.key] = copy
        for blob in (await store.documents(CHECKPOINTS)).values():
            checkpoint = msgspec.json.decode(blob, type=CheckpointRecord)
            self._checkpoints[checkpoint.key] = checkpoint
        living = {record.uid for record in self._instances.records()}
        for copy in self.copies():
            if copy.uid not in living and copy.phase in ENDED and copy.kind == "backup":
                await self.forget(copy)
        for checkpoint in self.checkpoints():
            if checkpoint.uid not in living:
                await self.forget_checkpoint(checkpoint)
        for machine in self._instances.machines():
            await self._drop_stale_claim(machine)

    def copies(self) -> tuple[CopyRecord, ...]:
        """All copies, oldest first."""
        return tuple(sorted(self._copies.values(), key=lambda copy: (copy.created, copy.key)))

    def checkpoints(self) -> tuple[CheckpointRecord, ...]:
        """All checkpoints, oldest first."""
        return tuple(sorted(self._checkpoints.values(), key=lambda found: (found.created, found.key)))

    def domain_of(self, checkpoint: CheckpointRecord) -> str:
        """The UUID of the domain that has ``checkpoint``; empty when it is gone."""
        found = (r.plan.identity.uuid for r in self._instances.records() if r.uid == checkpoint.uid)
        return next(found, "")

    def on_event(self, event: Event) -> None:
        """What libvirt tells."""
        match event:
            case ConnectionEvent(up=True):
                for copy in self.copies():
                    if copy.phase not in ENDED and not self._is_begun_here(copy):
                        self._follow(copy)
                self._look.set()
            case JobCompletedEvent() | LifecycleEvent():
                self._look.set()
            case _:
                return

    async def begin(self, machine: Machine, copy: CopyRecord, *, quiesce: bool) -> CopyRecord:
        """Begin ``copy``; it is under way when this returns, whether somebody waits for this or not.

        Raises:
            Conflict: the domain is busy. AlreadyExists: another call was first.
            StorageError, Exhausted: the folder or its room.
            HostUnsupported, HypervisorError: libvirt refuses. What was made for it is gone then.
        """
        work = self._begin(machine, copy, quiesce=quiesce)
        return await self._shielded(work, name=copy.key)

    async def end(self, copy: CopyRecord, *, abort: bool, timeout_s: float) -> CopyRecord:
        """End the job of ``copy`` and wait for that; one that ended already is a success.

        Raises:
            TimedOut: it does not end in time; it is tried again with the next call.
        """
        copy = self._copies[copy.key]
        if copy.phase not in ENDED:
            copy = await self.save(replace(copy, ending="abort" if abort else "done"))
            with contextlib.suppress(WrongPhase, NotFound):  # it ended by itself
                await self._services.hypervisor.abort_job(copy.uuid)
            self._look.set()
        return await self.wait(copy, timeout_s=timeout_s)

    async def wait(self, copy: CopyRecord, *, timeout_s: float) -> CopyRecord:
        """Wait until ``copy`` ended; raises TimedOut."""
        try:
            async with asyncio.timeout(timeout_s), self._changed:
                await self._changed.wait_for(
                    lambda: self._copies.get(copy.key) is None or self._copies[copy.key].phase in ENDED
                )
        except TimeoutError:
            raise TimedOut(f"{copy.kind} {copy.name} did not end within {timeout_s:.0f} s") from None
        return self._copies.get(copy.key, copy)

    async def save(self, copy: CopyRecord) -> CopyRecord:
        """Keep ``copy``, on disk."""
        await self._services.store.put(COPIES, copy.key, msgspec.json.encode(copy))
        self._copies[copy.key] = copy
        async with self._changed:
            self._changed.notify_all()
        return copy

    async def forget(self, copy: CopyRecord) -> None:
        """Keep nothing of ``copy`` but its files."""
        self._copies.pop(copy.key, None)
        await self._services.store.remove(COPIES, copy.key)

    async def save_checkpoint(self, checkpoint: CheckpointRecord) -> None:
        """Keep ``checkpoint``, on disk."""
        await self._services.store.put(CHECKPOINTS, checkpoint.key, msgspec.json.encode(checkpoint))
        self._checkpoints[checkpoint.key] = checkpoint

    async def forget_checkpoint(self, checkpoint: CheckpointRecord) -> None:
        """Keep nothing of ``checkpoint``."""
        self._checkpoints.pop(checkpoint.key, None)
        await self._services.store.remove(CHECKPOINTS, checkpoint.key)

    # One run.

    async def _begin(self, machine: Machine, copy: CopyRecord, *, quiesce: bool) -> CopyRecord:
        async with self._claimed(machine, copy):
            if copy.own and copy.kind == "backup":
                # A folder that is there already has somebody else's files: nothing is undone then.
                await asyncio.to_thread(copies.make_backup_directory, Path(copy.directory))
            try:
                if copy.kind == "snapshot":
                    await asyncio.to_thread(copies.make_copy_directory, Path(copy.directory))
                held = self._quiesce.quiet(machine) if quiesce else nullcontext(_NO_AGENT_ASKED)
                xml = checkpoint_xml(copy.checkpoint, copy.job) if copy.checkpoint else ""
                async with held as indications:
                    await self._services.hypervisor.begin_backup(copy.uuid, backup_xml(copy.job), xml)
            except (LauncherError, TimeoutError):
                await self._undo(copy)
                raise
            log.info(f"{copy.kind} {copy.name} is under way", vmi=copy.instance, uid=copy.uid)
            copy = await self.save(replace(copy, phase="InProgress", indications=indications))
            await self._show(copy)
            self._follow(copy)
            return copy

    @asynccontextmanager
    async def _claimed(self, machine: Machine, copy: CopyRecord) -> AsyncIterator[None]:
        """Hold the domain for ``copy``; given back only if the block raises, else when the copy ended."""
        if copy.key in self._copies:
            # Two calls for it came at the same time: the record is that of the first.
            raise AlreadyExists(copy.kind, f"{copy.instance}/{copy.name}")
        self._copies[copy.key] = copy
        claimed = begun = False
        try:
            await self.save(copy)
            await machine.update(lambda record: claimed_for(record, _job(copy)), wake=False)
            claimed = True
            yield
            begun = True
        except HypervisorUnavailable:
            begun = claimed  # perhaps: who comes back to libvirt finds out
            raise
        finally:
            if claimed and not begun:
                await self._give_back(copy)
            if not begun:
                await self.forget(copy)

    def _follow(self, copy: CopyRecord) -> None:
        present = self._followers.get(copy.key)
        if present is None or present.done():
            name = f"{copy.kind} {copy.name} of {copy.instance}"
            self._followers[copy.key] = self._supervisor.spawn(self._run(copy), name=name)

    async def _run(self, copy: CopyRecord) -> None:
        """Follow the job of ``copy`` to its end; without a connection this ends, until there is one."""
        try:
            if copy.phase == "Pending":
                machine = self._instances.by_uuid(copy.uuid)
                if machine is not None:
                    await self._quiesce.release(machine)
                if not await self._is_under_way(copy):
                    await self._finish(copy, why="the agent was ended before it had begun")
                    return
                copy = await self.save(replace(copy, phase="InProgress", indications=_NO_AGENT_ASKED))
            clock = self._services.clock
            deadline = clock.monotonic() + copy.deadline_s
            while (stats := await self._stats(copy)) is not None:
                copy = self._progress(copy, stats)
                if clock.monotonic() >= deadline and not copy.ending:
                    message = f"it did not end within {copy.deadline_s} s"
                    copy = await self.save(replace(copy, ending="abort", message=message))
                    await self._services.hypervisor.abort_job(copy.uuid)
                await self._pause()
            await self._finish(self._copies[copy.key], why=await self._failure(self._copies[copy.key]))
        except HypervisorUnavailable:
            return
        except (LauncherError, TimeoutError) as error:
            log.warning(f"cannot follow {copy.kind} {copy.name}: {error}", vmi=copy.instance)
            await asyncio.sleep(POLL_S)
            self._followers.pop(copy.key, None)
            self._follow(self._copies[copy.key])

    async def _stats(self, copy: CopyRecord) -> JobStats | None:
        """Statistics of its job; None: it is over."""
        try:
            stats = await self._services.hypervisor.job_stats(copy.uuid)
        except (WrongPhase, NotFound):
            return None
        return stats if stats.kind in _UNDER_WAY and stats.operation == BACKUP else None

    def _progress(self, copy: CopyRecord, stats: JobStats) -> CopyRecord:
        """What is known of it now. How far it is, is not worth a write to the disk."""
        present = self._copies.get(copy.key, copy)
        total, processed = stats.disk_total or 0, stats.disk_processed or 0
        self._copies[copy.key] = replace(present, total=total, processed=processed)
        return self._copies[copy.key]

    async def _failure(self, copy: CopyRecord) -> str:
        """Why a job that is over failed; empty: it did what it should."""
        if copy.ending == "abort":
            return copy.message or "it was aborted"
        if copy.ending == "done" and copy.job.mode == "pull":
            return ""
        try:
            stats = await self._services.hypervisor.completed_job_stats(copy.uuid)
        except (WrongPhase, NotFound):
            return "the guest ended"
        if stats.operation != BACKUP:
            return "how it ended is not known any more"
        if copy.job.mode == "pull":
            return stats.error or "somebody else ended it"
        return stats.error if stats.kind == "completed" else stats.error or stats.kind

    async def _finish(self, copy: CopyRecord, *, why: str) -> None:
        if not why and copy.job.mode == "push":
            try:
                await asyncio.to_thread(copies.sync_files, files(copy))
            except LauncherError as error:
                why = error.message
        if not why and copy.checkpoint:
            why = await self._keep_checkpoint(copy)
        if why:
            log.warning(f"{copy.kind} {copy.name} failed: {why}", vmi=copy.instance, uid=copy.uid)
            await self._undo(copy)
        elif copy.job.mode == "pull":
            await asyncio.to_thread(copies.remove_files, files(copy))
        # The claim first: an agent that is killed here finds a copy that is under way, whose job is over.
        await self._give_back(copy)
        ended = self._services.clock.now()
        done = replace(copy, phase="Failed" if why else "Succeeded", message=why, ended=ended)
        await self._show(done)
        await self.save(replace(done, processed=done.processed if why else done.total))

    async def _show(self, copy: CopyRecord) -> None:
        """Let the instance's status tell of a backup."""
        machine = self._instances.by_uuid(copy.uuid)
        if machine is not None and copy.kind == "backup":
            status = backup_status(copy)
            with contextlib.suppress(NotFound):
                await machine.update(lambda record: replace(record, backup=status), wake=False)

    async def _keep_checkpoint(self, copy: CopyRecord) -> str:
        """Write its checkpoint down; why that cannot be done, else empty."""
        try:
            xml = await self._services.hypervisor.checkpoint_xml(copy.uuid, copy.checkpoint)
        except (NotFound, WrongPhase):
            # The copy itself is good. The next one has to be a full one.
            log.warning(
                "the checkpoint is gone with its guest", vmi=copy.instance, checkpoint=copy.checkpoint
            )
            return ""
        await self.save_checkpoint(
            CheckpointRecord(
                uid=copy.uid,
                namespace=copy.namespace,
                vmi=copy.vmi,
                name=copy.checkpoint,
                created=copy.created,
                volumes=tuple(volume.volume for volume in copy.volumes),
                xml=xml,
            )
        )
        for oldest in [c for c in self.checkpoints() if c.uid == copy.uid][:-MOST_CHECKPOINTS]:
            await self._services.hypervisor.delete_checkpoint(copy.uuid, oldest.name)
            await self.forget_checkpoint(oldest)
        return ""

    async def _undo(self, copy: CopyRecord) -> None:
        """Remove what there may be of a copy that is not to be: its job, its checkpoint, its files."""
        hypervisor = self._services.hypervisor
        try:
            if await self._is_under_way(copy):
                await hypervisor.abort_job(copy.uuid)
            if copy.checkpoint:
                await hypervisor.delete_checkpoint(copy.uuid, copy.checkpoint)
        except HypervisorUnavailable:
            raise
        except LauncherError as error:
            log.info(f"nothing to undo of {copy.kind} {copy.name}: {error}", vmi=copy.instance)
        await asyncio.to_thread(_remove, copy)

    async def _is_under_way(self, copy: CopyRecord) -> bool:
        try:
            xml = await self._services.hypervisor.backup_xml(copy.uuid)
        except (NotFound, WrongPhase):
            return False
        return any(disk.file in xml for disk in copy.job.disks)

    def _is_begun_here(self, copy: CopyRecord) -> bool:
        """Whether a call of this agent is just beginning it."""
        return any(task.get_name() == copy.key for task in self._beginning)

    async def _shielded(self, work: Coroutine[Any, Any, CopyRecord], *, name: str) -> CopyRecord:
        """Run to the end also if the caller leaves: a guest must not stay frozen for that."""
        task = asyncio.create_task(work, name=name)
        self._beginning.add(task)
        task.add_done_callback(self._beginning.discard)
        return await asyncio.shield(task)

    async def _give_back(self, copy: CopyRecord) -> None:
        machine = self._instances.by_uuid(copy.uuid)
        if machine is not None and machine.record.job == _job(copy):
            with contextlib.suppress(NotFound):
                await machine.update(lambda record: replace(record, job=None), wake=False)

    async def _drop_stale_claim(self, machine: Machine) -> None:
        """The claim of a copy that is not under way: the agent was ended between two writes."""
        job = machine.record.job
        busy = {(copy.uid, *_job_key(_job(copy))) for copy in self.copies() if copy.phase not in ENDED}
        if job is not None and job.kind != "memory dump" and (machine.record.uid, *_job_key(job)) not in busy:
            await machine.update(lambda record: replace(record, job=None), wake=False)

    async def _pause(self) -> None:
        self._look.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(POLL_S):
                await self._look.wait()


def claimed_for(record: InstanceRecord, job: DomainJob) -> InstanceRecord:
    """The record with ``job``; raises Conflict when the domain is busy or migrates, or a volume left."""
    if record.outgoing:
        raise Conflict(f"{record.key} migrates", hint="wait for the migration, or cancel it")
    if record.job is not None:
        raise Conflict(f"{record.key} is busy with its {record.job}", hint="wait for it")
    require_present(record, job.volume)
    return replace(record, job=job)


def files(copy: CopyRecord) -> tuple[Path, ...]:
    """The files that the job writes."""
    return tuple(Path(disk.file) for disk in copy.job.disks)


def _remove(copy: CopyRecord) -> None:
    if copy.own:
        copies.remove_copy_directory(Path(copy.directory))
    else:
        copies.remove_files(files(copy))


def _job(copy: CopyRecord) -> DomainJob:
    return DomainJob(kind=copy.kind, name=copy.name, volume=copy.destination)


def _job_key(job: DomainJob) -> tuple[str, str]:
    return job.kind, job.name
