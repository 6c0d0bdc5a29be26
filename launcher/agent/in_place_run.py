# SPDX-License-Identifier: Apache-2.0
"""Moves volumes of one guest to other claims of its node while it runs, through restarts, to a written end.

``migration.disk_copy`` decides from libvirt's live XML what is next; here it is written down, then done.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Protocol

import msgspec

from launcher.agent import lifecycle
from launcher.agent.in_place_claims import InPlaceClaims
from launcher.agent.machine import Machine, Services
from launcher.agent.migration_status import OutgoingEntry, migration_state, view
from launcher.agent.port import MigrationView
from launcher.agent.records import InstanceRecord
from launcher.agent.volume_moves import withdrawn
from launcher.domain.block_copy import copy_xml
from launcher.domain.read import read_domain
from launcher.errors import Conflict, HypervisorUnavailable, LauncherError, NotFound, TimedOut
from launcher.host.logging import get
from launcher.migration.attempt import AttemptRecord, Cause, Phase, Transition
from launcher.migration.copy_clock import CopyClock, overdue
from launcher.migration.disk_copy import (
    MOST_BEGINS,
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
from launcher.migration.policy import Abort, Outcome
from launcher.migration.progress import MigrationProgress, MigrationReport
from launcher.migration.recording import Acted, Looked, Recorder, StepName, Stepped
from launcher.spec.model import VirtualMachineInstanceMigration

log = get(__name__)

POLL_S = 0.5
AGAIN_S = 2.0
"""After an error of libvirt's that may pass."""
FLUSH_S = 5.0
"""How much of the samples an agent that is killed may lose."""


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
    async def change(self, key: str, change: Callable[[InPlaceEntry], InPlaceEntry]) -> InPlaceEntry:
        """Change an entry; nobody else does meanwhile, and it is on disk when this returns."""

    def tell(self, key: str, progress: MigrationProgress) -> None: ...


class InPlaceRun:
    """One migration; ``run`` may be called again after libvirt was away."""

    def __init__(
        self,
        key: str,
        machine: Machine,
        services: Services,
        claims: InPlaceClaims,
        entries: Entries,
        recorder: Recorder,
    ) -> None:
        self._key = key
        self._machine = machine
        self._services = services
        self._claims = claims
        self._entries = entries
        self._recorder = recorder
        self._issued: set[str] = set()
        # Calls to begin a copy that may be on their way still: also those of an agent that was killed.
        self._unanswered = {copy.volume for copy in self._entry.copies if copy.begins}
        self._giving_up = False
        self._flushed = 0.0
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
            await self._end(Phase.FAILED, Cause.CANCELLED, "cancelled before the copy began")
            return False
        try:
            found = await self._claims.refusals()
            if found:
                await self._end(Phase.FAILED, Cause.REFUSED, "; ".join(found))
                return False
            copies = await self._claims.make()
        except HypervisorUnavailable:
            raise
        except (LauncherError, TimeoutError) as error:
            why = str(error) or "the claims did not answer in time"
            await self._end(Phase.FAILED, Cause.REFUSED, why)
            return False
        began = self._services.clock.monotonic()
        await self._enter(Phase.RUNNING, copies=copies, job_began=began)
        return True

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
                    await self._save(now.copies)
                if now.ended:
                    if await self._quiet(seen, ended):
                        await self._finish(cause, give_up)
                        return
                    continue
                await self._perform(now, cause, give_up)
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

    async def _quiet(self, seen: Mapping[str, Seen], ended: bool) -> bool:
        """Whether no copy of ours can begin any more that nobody would end: then the claims are free.

        A call to begin that was not answered may be carried out later. One to end the copy waits its turn
        behind it, with libvirt and with us, so its answer tells.
        """
        if ended:
            return True
        uuid, hypervisor = self._machine.record.plan.identity.uuid, self._services.hypervisor
        for copy in self._entry.copies:
            if copy.state == "moved" or copy.volume not in self._unanswered:
                continue
            disk = seen.get(copy.volume)
            if disk is not None and not disk.copy_to:  # Otherwise its job is not ours.
                try:
                    await hypervisor.end_disk_copy(uuid, copy.target, pivot=False)
                except (HypervisorUnavailable, TimedOut, Conflict):
                    raise
                except LauncherError as error:
                    log.info(f"no copy to end: {error}", migration=self._key, volume=copy.volume)
            self._unanswered.discard(copy.volume)
            return False
        return True

    async def _perform(self, now: Next, cause: Cause, give_up: str) -> None:
        """Write down, then do."""
        uuid, hypervisor = self._machine.record.plan.identity.uuid, self._services.hypervisor
        if give_up and not self._giving_up and isinstance(now.action, Drop):
            self._giving_up = True
            self._recorder.note(
                Acted(outcome=Outcome(action=Abort(reason=give_up, cause=cause), t=self._elapsed))
            )
        match now.action:
            case Begin(copy=copy):
                log.info("copying a disk", migration=self._key, volume=copy.volume, to=copy.destination)
                await self._save(begun(now.copies, copy))
                async with self._noted("copy", copy, f"to {copy.destination}"):
                    await self._begin(copy)
            case Pivot(copy=copy):
                log.info("changing over to a copy", migration=self._key, volume=copy.volume)
                await self._save(pivoting(now.copies, copy))
                async with self._noted("pivot", copy, "all copies are the same as their disks"):
                    await hypervisor.end_disk_copy(uuid, copy.target, pivot=True)
            case Drop(copy=copy):
                log.info("dropping a copy", migration=self._key, volume=copy.volume)
                async with self._noted("drop", copy, copy.why or give_up or "another one failed"):
                    await hypervisor.end_disk_copy(uuid, copy.target, pivot=False)
            case None:
                return

    async def _begin(self, copy: DiskCopy) -> None:
        options = self._entry.attempt.outgoing.options
        self._unanswered.add(copy.volume)
        try:
            await self._services.hypervisor.copy_disk(
                self._machine.record.plan.identity.uuid,
                copy.target,
                copy_xml(copy.destination, block=copy.block, size=copy.slice),
                bandwidth_bps=options.bandwidth_bps,
                in_step=options.allow_auto_converge,
            )
        except (HypervisorUnavailable, TimedOut):
            raise  # It may be carried out all the same: the live XML tells.
        except Conflict as error:  # Our own call of before may be why.
            if copy.begins + 1 >= MOST_BEGINS:
                await self._save(failed(self._entry.copies, copy, str(error)))
            raise
        except LauncherError as error:
            self._unanswered.discard(copy.volume)
            await self._save(failed(self._entry.copies, copy, str(error)))
            raise
        self._unanswered.discard(copy.volume)
        self._issued.add(copy.volume)

    async def _measure(self, clock: CopyClock) -> CopyClock:
        """How far the copies are, shown and recorded."""
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
        self._entries.tell(self._key, clock.progress(attempt.phase.value, self._elapsed))
        self._recorder.note(Looked(sample=clock.sample(self._elapsed)))
        if now - self._flushed >= FLUSH_S:
            self._flushed = now
            await self._recorder.flush()
        return clock

    @property
    def _elapsed(self) -> float:
        """Seconds since the copy began."""
        began = self._entry.attempt.job_began
        return max(0.0, self._services.clock.monotonic() - began) if began is not None else 0.0

    @contextlib.asynccontextmanager
    async def _noted(self, step: StepName, copy: DiskCopy, reason: str) -> AsyncIterator[None]:
        """Record a step, and how it went."""
        t, error = self._elapsed, ""
        try:
            yield
        except (LauncherError, TimeoutError) as caught:
            error = str(caught) or "no answer in time"
            raise
        finally:
            self._recorder.note(Stepped(t=t, step=step, volume=copy.volume, reason=reason, error=error))
            await self._recorder.flush()

    # The end.

    async def _finish(self, cause: Cause, give_up: str) -> None:
        copies = self._entry.copies
        done = frozenset(copy.volume for copy in copies if copy.state == "moved")
        left = [copy for copy in copies if copy.state != "moved"]
        if done:
            with contextlib.suppress(NotFound):  # The instance was forgotten meanwhile.
                await self._claims.settle(done)
        if not left:
            await self._end(Phase.SUCCEEDED, Cause.NONE, _late(self._entry.attempt))
            return
        await self._claims.let_go(left)
        why = "; ".join(f"volume {copy.volume!r}: {copy.why}" for copy in left if copy.why)
        if done:
            await self._end(Phase.FAILED, Cause.HYPERVISOR, f"{', '.join(sorted(done))} moved; {why}")
        elif cause is not Cause.NONE:
            await self._end(Phase.FAILED, cause, give_up)
        else:
            await self._end(Phase.FAILED, Cause.HYPERVISOR, why)

    async def _end(self, phase: Phase, cause: Cause, reason: str) -> None:
        entry, at = self._entry, self._services.clock.now()
        attempt = entry.attempt
        took_ms = int(self._elapsed * 1000) if attempt.job_began is not None else None
        copied = sum(copy.bytes for copy in entry.copies if copy.state == "moved")
        report = MigrationReport(
            succeeded=phase is Phase.SUCCEEDED,
            reason=reason,
            total_ms=took_ms,
            transferred=copied or None,
            disk_bytes=copied or None,
            disk_ms=took_ms if copied else None,
            source="samples",
        )

        def ended(entry: InPlaceEntry) -> InPlaceEntry:
            attempt = msgspec.structs.replace(
                entry.attempt,
                phase=phase,
                transitions=(*entry.attempt.transitions, Transition(phase=phase, at=at)),
                cause=cause,
                reason=reason,
                confirmed=phase is Phase.SUCCEEDED,
                report=report,
            )
            return msgspec.structs.replace(entry, attempt=attempt)

        log.info("migration ended", migration=self._key, phase=phase.value, cause=cause.value, why=reason)
        state = migration_state(ended(entry).as_outgoing())

        def change(record: InstanceRecord) -> InstanceRecord:
            record = withdrawn(record) if cause is Cause.CANCELLED else record
            return msgspec.structs.replace(record, outgoing="", migration_state=state)

        # The instance first: who sees the end finds it free. An agent that dies in between comes here again.
        with contextlib.suppress(NotFound):
            await self._machine.update(change)
        await self._entries.change(self._key, ended)

    async def _enter(
        self, phase: Phase, *, copies: tuple[DiskCopy, ...] = (), job_began: float | None = None
    ) -> None:
        if self._entry.attempt.phase is phase:
            return
        at = self._services.clock.now()

        def entered(entry: InPlaceEntry) -> InPlaceEntry:
            attempt = msgspec.structs.replace(
                entry.attempt,
                phase=phase,
                job_began=job_began,
                transitions=(*entry.attempt.transitions, Transition(phase=phase, at=at)),
            )
            return msgspec.structs.replace(entry, attempt=attempt, copies=copies)

        state = migration_state((await self._entries.change(self._key, entered)).as_outgoing())
        await self._machine.update(
            lambda record: msgspec.structs.replace(record, migration_state=state), wake=False
        )

    async def _save(self, copies: tuple[DiskCopy, ...]) -> None:
        await self._entries.change(self._key, lambda entry: msgspec.structs.replace(entry, copies=copies))

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._look.wait()


def _late(attempt: AttemptRecord) -> str:
    return "the request to cancel came too late" if attempt.cancel else ""
