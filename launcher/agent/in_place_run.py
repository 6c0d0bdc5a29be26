# SPDX-License-Identifier: Apache-2.0
"""Moves volumes of one guest to other claims of its node while it runs, through restarts, to a written end.

``migration.disk_copy`` decides from libvirt's live XML what is next; here it is written down, then done.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Protocol

import msgspec

from launcher.agent import lifecycle
from launcher.agent.apart import require_apart
from launcher.agent.departure import moved_disks
from launcher.agent.instances import Instances
from launcher.agent.machine import Machine, Services
from launcher.agent.migration_status import OutgoingEntry, migration_state, view
from launcher.agent.moved_volumes import objections, same_place, spots
from launcher.agent.port import MigrationView
from launcher.agent.records import InstanceRecord
from launcher.agent.volume_moves import arranged, moved, withdrawn
from launcher.domain.block_copy import copy_xml
from launcher.domain.read import read_domain
from launcher.errors import Conflict, HypervisorUnavailable, LauncherError, NotFound, TimedOut
from launcher.host.logging import get
from launcher.migration.attempt import AttemptRecord, Cause, Phase, Transition
from launcher.migration.copy_clock import CopyClock, overdue
from launcher.migration.disk_copy import (
    Begin,
    DiskCopy,
    Drop,
    Next,
    Pivot,
    Seen,
    begun,
    failed,
    next_step,
    pivoting,
)
from launcher.migration.peer import MovedDisk
from launcher.migration.progress import MigrationProgress, MigrationReport
from launcher.migration.reasons import unfit
from launcher.plan.steps import AnyStep
from launcher.spec.model import VirtualMachineInstanceMigration
from launcher.storage.destination import fit

log = get(__name__)

POLL_S = 0.5
AGAIN_S = 2.0
"""After an error of libvirt's that may pass."""


class InPlaceEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A migration within this node, as it is stored; ``deleted``: it is to be forgotten at its end."""

    manifest: VirtualMachineInstanceMigration
    uid: str
    attempt: AttemptRecord
    copies: tuple[DiskCopy, ...] = ()
    deleted: bool = False

    @property
    def key(self) -> str:
        """``namespace/name`` of the migration."""
        return self.as_outgoing().key

    def as_outgoing(self) -> OutgoingEntry:
        """As all migrations are shown."""
        node = self.attempt.outgoing.source_node
        return OutgoingEntry(manifest=self.manifest, target=node, uid=self.uid, attempt=self.attempt)


def shown(entry: InPlaceEntry, progress: MigrationProgress | None) -> MigrationView:
    """The migration as the API shows it."""
    return view(entry.as_outgoing(), progress)


class Entries(Protocol):
    """Where the entries are kept."""

    def find(self, key: str) -> InPlaceEntry | None: ...
    async def save(self, entry: InPlaceEntry, progress: MigrationProgress | None = None) -> None: ...
    def tell(self, key: str, progress: MigrationProgress) -> None: ...


class InPlaceRun:
    """One migration; ``run`` may be called again after libvirt was away."""

    def __init__(
        self, key: str, machine: Machine, services: Services, instances: Instances, entries: Entries
    ) -> None:
        self._key = key
        self._machine = machine
        self._services = services
        self._instances = instances
        self._entries = entries
        self._issued: set[str] = set()
        self._unsure: set[str] = set()
        self._look = asyncio.Event()

    def nudge(self) -> None:
        """Look again at once."""
        self._look.set()

    async def run(self) -> None:
        """Carry it to its end.

        Raises:
            HypervisorUnavailable: libvirt is away; run it again when it is back.
        """
        if self._entry.attempt.phase is not Phase.RUNNING and not await self._prepare():
            return
        await self._follow()

    @property
    def _entry(self) -> InPlaceEntry:
        entry = self._entries.find(self._key)
        if entry is None:
            raise NotFound("VirtualMachineInstanceMigration", self._key)
        return entry

    # Before anything is copied.

    async def _prepare(self) -> bool:
        await self._enter(Phase.PREPARING_TARGET)
        if self._entry.attempt.cancel:
            await self._fail(Cause.CANCELLED, "cancelled before the copy began")
            return False
        try:
            found = await self._refusals()
            if found:
                await self._fail(Cause.REFUSED, "; ".join(found))
                return False
            copies = await self._make()
        except HypervisorUnavailable:
            raise
        except (LauncherError, TimeoutError) as error:
            await self._fail(Cause.REFUSED, str(error) or "the claims did not answer in time")
            return False
        began = self._services.clock.monotonic()
        await self._enter(Phase.RUNNING, copies=copies, job_began=began)
        return True

    async def _after(self, record: InstanceRecord, names: frozenset[str]) -> InstanceRecord:
        site = await self._instances.site(record.manifest, record.uid)
        return moved(record, names, site)

    async def _refusals(self) -> tuple[str, ...]:
        record = self._machine.record
        domain = await self._services.hypervisor.domain(record.plan.identity.uuid)
        why = unfit(domain.state, domain.reason)
        if why:
            return (why,)
        disks = await moved_disks(record, self._services.hypervisor)
        if not disks:
            return ("no volume is to move",)
        after = await self._after(record, frozenset(disk.volume for disk in disks))
        others = (other.record for other in self._instances.machines() if not other.ended)
        await require_apart(after, others)
        return (*await objections(after, disks), *await asyncio.to_thread(same_place, record, after, disks))

    async def _make(self) -> tuple[DiskCopy, ...]:
        """Bring the destinations to their sizes, journalled."""
        record = self._machine.record
        disks = await moved_disks(record, self._services.hypervisor)
        after = await self._after(record, frozenset(disk.volume for disk in disks))
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

    # While it is copied.

    async def _follow(self) -> None:
        clock = CopyClock(total=sum(copy.bytes for copy in self._entry.copies))
        while True:
            self._look.clear()
            try:
                seen, ended = await self._seen()
                cause, give_up = self._give_up(clock, ended)
                now = next_step(self._entry.copies, seen, give_up=give_up, issued=frozenset(self._issued))
                if now.copies != self._entry.copies:
                    await self._save(copies=now.copies)
                if now.ended and self._unsure:
                    await self._settle_unsure()
                    continue
                if now.ended:
                    await self._finish(cause, give_up)
                    return
                await self._perform(now)
                if now.action is None:
                    clock = await self._measure(clock)
                    await self._pause(POLL_S)
            except HypervisorUnavailable:
                raise
            except (LauncherError, TimeoutError) as error:
                log.warning(f"a copy of disks waits: {error}", migration=self._key)
                await self._pause(AGAIN_S)

    async def _seen(self) -> tuple[dict[str, Seen], bool]:
        """The disks as libvirt knows them, and whether the guest ended."""
        uuid, hypervisor = self._machine.record.plan.identity.uuid, self._services.hypervisor
        try:
            observed = await hypervisor.domain(uuid)
            alive = lifecycle.alive(observed)
            xml = await hypervisor.domain_xml(uuid, inactive=not alive)
        except NotFound:
            return {}, True
        disks = read_domain(xml).disks
        return {
            disk.alias: Seen(source=disk.source, copy_to=disk.copy_to, copy_ready=disk.copy_ready)
            for disk in disks
        }, not alive

    def _give_up(self, clock: CopyClock, ended: bool) -> tuple[Cause, str]:
        attempt = self._entry.attempt
        if ended:
            return Cause.GUEST_ENDED, "the guest ended while its disks were copied"
        if attempt.cancel:
            return Cause.CANCELLED, "cancelled"
        now = self._services.clock.monotonic()
        return overdue(clock, attempt.outgoing.options, began=attempt.job_began or now, now=now)

    async def _perform(self, now: Next) -> None:
        """Write down, then do."""
        uuid, hypervisor = self._machine.record.plan.identity.uuid, self._services.hypervisor
        options = self._entry.attempt.outgoing.options
        match now.action:
            case Begin(copy=copy):
                log.info("copying a disk", migration=self._key, volume=copy.volume, to=copy.destination)
                await self._save(copies=begun(now.copies, copy))
                xml = copy_xml(copy.destination, block=copy.block, size=copy.slice)
                try:
                    await hypervisor.copy_disk(
                        uuid,
                        copy.target,
                        xml,
                        bandwidth_bps=options.bandwidth_bps,
                        in_step=options.allow_auto_converge,
                    )
                except HypervisorUnavailable:
                    raise
                except LauncherError as error:
                    if isinstance(error, TimedOut):
                        self._unsure.add(copy.volume)
                    await self._save(copies=failed(self._entry.copies, copy, str(error)))
                    return
                self._issued.add(copy.volume)
            case Pivot(copy=copy):
                log.info("changing over to a copy", migration=self._key, volume=copy.volume)
                await self._save(copies=pivoting(now.copies, copy))
                await hypervisor.end_disk_copy(uuid, copy.target, pivot=True)
            case Drop(copy=copy):
                log.info("dropping a copy", migration=self._key, volume=copy.volume)
                await hypervisor.end_disk_copy(uuid, copy.target, pivot=False)
            case None:
                return

    async def _settle_unsure(self) -> None:
        """End copies whose call did not return in time, once it did: what it began later would be nobody's,
        and write to a claim that is given to another."""
        uuid = self._machine.record.plan.identity.uuid
        for copy in self._entry.copies:
            if copy.volume in self._unsure and copy.state == "left":
                try:
                    await self._services.hypervisor.end_disk_copy(uuid, copy.target, pivot=False)
                except (HypervisorUnavailable, Conflict, TimedOut):
                    raise  # It hangs still, or nobody can be asked.
                except LauncherError:
                    log.info("a copy of a disk never began", migration=self._key, volume=copy.volume)
        self._unsure.clear()

    async def _measure(self, clock: CopyClock) -> CopyClock:
        """How far the copies are, shown."""
        uuid, done, rest = self._machine.record.plan.identity.uuid, 0, 0
        for copy in self._entry.copies:
            found = None
            if copy.state in ("begun", "pivoting"):
                found = await self._services.hypervisor.disk_copy_progress(uuid, copy.target)
            if copy.state == "moved":
                done += copy.bytes
            elif found is None:
                rest += copy.bytes
            else:
                done, rest = done + found[0], rest + max(0, found[1] - found[0])
        attempt, now = self._entry.attempt, self._services.clock.monotonic()
        clock = clock.looked(done=done, rest=rest, now=now)
        self._entries.tell(self._key, clock.progress(attempt.phase.value, now - (attempt.job_began or now)))
        return clock

    # The end.

    async def _finish(self, cause: Cause, give_up: str) -> None:
        copies = self._entry.copies
        done = frozenset(copy.volume for copy in copies if copy.state == "moved")
        left = [copy for copy in copies if copy.state != "moved"]
        if done:
            await self._settle_moved(done)
        if not left:
            await self._end(Phase.SUCCEEDED, Cause.NONE, _late(self._entry.attempt))
            return
        gone = tuple(MovedDisk(volume=copy.volume, bytes=copy.bytes) for copy in left)
        with contextlib.suppress(LauncherError):  # A step in the journal more costs nothing.
            record = self._machine.record
            after = await self._after(record, frozenset(copy.volume for copy in left))
            await self._services.resources.drop(_steps(after, gone))
        why = "; ".join(f"volume {copy.volume!r}: {copy.why}" for copy in left if copy.why)
        if done:
            await self._end(Phase.FAILED, Cause.HYPERVISOR, f"{', '.join(sorted(done))} moved; {why}")
        elif cause is not Cause.NONE:
            await self._end(Phase.FAILED, cause, give_up)
        else:
            await self._end(Phase.FAILED, Cause.HYPERVISOR, why)

    async def _settle_moved(self, names: frozenset[str]) -> None:
        """The record of an instance that has the new claims; what was made for the old ones is let go of."""
        record = self._machine.record
        site = await self._instances.site(record.manifest, record.uid)
        old = tuple(s for s in record.plan.steps if getattr(s, "volume", None) in names)
        waiting = any(move.name in names for move in record.moving)
        await self._machine.update(lambda present: moved(present, names, site), wake=False)
        if waiting:
            await self._services.resources.drop(old)

    async def _fail(self, cause: Cause, reason: str) -> None:
        await self._end(Phase.FAILED, cause, reason)

    async def _end(self, phase: Phase, cause: Cause, reason: str) -> None:
        attempt, clock = self._entry.attempt, self._services.clock
        spent = clock.monotonic() - attempt.job_began if attempt.job_began is not None else None
        took_ms = int(spent * 1000) if spent is not None else None
        copied = sum(copy.bytes for copy in self._entry.copies if copy.state == "moved")
        attempt = msgspec.structs.replace(
            attempt,
            phase=phase,
            transitions=(*attempt.transitions, Transition(phase=phase, at=clock.now())),
            cause=cause,
            reason=reason,
            confirmed=phase is Phase.SUCCEEDED,
            report=MigrationReport(
                succeeded=phase is Phase.SUCCEEDED,
                reason=reason,
                total_ms=took_ms,
                transferred=copied or None,
                disk_bytes=copied or None,
                disk_ms=took_ms if copied else None,
                source="samples",
            ),
        )
        log.info("migration ended", migration=self._key, phase=phase.value, cause=cause.value, why=reason)
        state = migration_state(msgspec.structs.replace(self._entry, attempt=attempt).as_outgoing())

        def change(record: InstanceRecord) -> InstanceRecord:
            record = withdrawn(record) if cause is Cause.CANCELLED else record
            return msgspec.structs.replace(record, outgoing="", migration_state=state)

        # The instance first: who sees the end finds it free. An agent that dies in between comes here again.
        with contextlib.suppress(NotFound):
            await self._machine.update(change)
        # As it is now: it may be to be forgotten meanwhile.
        await self._entries.save(msgspec.structs.replace(self._entry, attempt=attempt))

    async def _enter(
        self, phase: Phase, *, copies: tuple[DiskCopy, ...] = (), job_began: float | None = None
    ) -> None:
        attempt = self._entry.attempt
        if attempt.phase is phase:
            return
        attempt = msgspec.structs.replace(
            attempt,
            phase=phase,
            job_began=job_began,
            transitions=(*attempt.transitions, Transition(phase=phase, at=self._services.clock.now())),
        )
        entry = msgspec.structs.replace(self._entry, attempt=attempt, copies=copies)
        await self._entries.save(entry)
        state = migration_state(entry.as_outgoing())
        await self._machine.update(
            lambda record: msgspec.structs.replace(record, migration_state=state), wake=False
        )

    async def _save(self, *, copies: tuple[DiskCopy, ...]) -> None:
        await self._entries.save(msgspec.structs.replace(self._entry, copies=copies))

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._look.wait()


def _steps(after: InstanceRecord, disks: tuple[MovedDisk, ...]) -> tuple[AnyStep, ...]:
    """What is made for the copies of ``disks``; ``after`` has the new claims."""
    sizes = {disk.volume: disk.bytes for disk in disks}
    return arranged([s for s in after.plan.steps if getattr(s, "volume", None) in sizes], sizes)


def _late(attempt: AttemptRecord) -> str:
    return "the request to cancel came too late" if attempt.cancel else ""
