# SPDX-License-Identifier: Apache-2.0
"""Drives one outgoing migration through its phases. Convergence is the policy's, libvirt is the port's.

    Pending ─▶ PreparingTarget ─▶ TargetReady ─▶ Running ─▶ Succeeded
        └──────────────┴───────────────┴────────────┴─────▶ Failed

The record is saved before each phase, so ``run`` may be called for a record that another process left
behind (``adopt`` with the same arguments) and goes on where that one stopped: before ``Running`` nothing
has begun, and the target is prepared again; in ``Running`` the job is watched on with the same policy
state, or, when it is gone, both sides are asked who owns the guest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from launcher.errors import HypervisorUnavailable, LauncherError, NotFound, TimedOut, Unavailable
from launcher.hypervisor.port import DomainState, JobStats
from launcher.migration.attempt import (
    AttemptRecord,
    CancelAnswer,
    Cause,
    Material,
    Phase,
)
from launcher.migration.clock import Clock
from launcher.migration.deadline import deadline
from launcher.migration.domains import Domains
from launcher.migration.earlier import let_go
from launcher.migration.flags import encrypted, migrate_params
from launcher.migration.halves import OVER, give_up
from launcher.migration.ledger import Journal, Ledger
from launcher.migration.monitor import Ending, Monitor
from launcher.migration.ownership import SourceSide, Verdict
from launcher.migration.peer import Peer, PrepareReply, PrepareRequest
from launcher.migration.policy import Policy
from launcher.migration.progress import MigrationProgress, MigrationReport
from launcher.migration.reasons import cause_of, failure, left_behind, unfit
from launcher.migration.recording import Recorder
from launcher.migration.recovery import LOOK_S, Recovery, in_halves
from launcher.migration.report import make_report
from launcher.migration.resolve import RESOLVE_S, Resolver
from launcher.migration.unplug import Unplugging

PREPARE_DEADLINE_S = 20.0
"""The target has 5 s for its checks and 14 s to reserve; the rest is the way there and back."""
AWAY_S = 30.0
"""So long a target is asked again whose agent does not answer: it may be restarted, or upgraded."""
PREPARE_AGAIN_S = 1.0
READ_DEADLINE_S = 10.0
BUSY_S = 900.0
"""So long a target is waited for that takes no more migrations now; KubeVirt lets one wait as long."""
BUSY_AGAIN_S = 3.0
_ORDER = tuple(Phase)


class SourceMigration:
    """One attempt. ``run`` it once; ``cancel`` may come at any time from another task of the same loop.

    ``publish`` gets the progress after every look and phase; it must not block. ``journal`` keeps the
    record; the final one is also what ``run`` returns. ``recorder`` keeps what was seen and decided.
    """

    def __init__(
        self,
        record: AttemptRecord,
        *,
        material: Material,
        hypervisor: Domains,
        peer: Peer,
        policy: Policy[Any],
        clock: Clock,
        journal: Journal,
        publish: Callable[[MigrationProgress], None],
        recorder: Recorder | None = None,
    ) -> None:
        self._material = material
        self._hypervisor = hypervisor
        self._peer = peer
        self._ledger = Ledger(record, journal, clock)
        self._clock = clock
        self._publish = publish
        self._monitor = Monitor(hypervisor, self._ledger, policy, clock, publish, recorder)

    @property
    def record(self) -> AttemptRecord:
        """The record now."""
        return self._ledger.record

    async def run(self) -> AttemptRecord:
        """Carry the attempt to its end and return the final record; an attempt that fails is no exception.

        Raises:
            HypervisorUnavailable: libvirt cannot be asked for so long that the attempt is left as it is,
                in ``Running``; run its record again when libvirt answers.
        """
        unsubscribe = self._hypervisor.subscribe(self._monitor.on_event)
        try:
            if self.record.phase.final:
                if self.record.phase is Phase.SUCCEEDED and not self.record.confirmed:
                    await self._confirm_late()
            elif self.record.phase is Phase.RUNNING:
                await self._end(await self._monitor.watch(None))
            elif await self._prepare() and await self._unplug():
                await self._migrate()
        finally:
            unsubscribe()
        return self.record

    async def cancel(self) -> CancelAnswer:
        """Ask that the attempt ends without the guest moving. The record's end tells whether it did."""
        record = self.record
        if record.phase.final:
            return CancelAnswer.ENDED
        await self._ledger.change(cancel=True)
        if record.post_copy and not record.interrupted:
            return CancelAnswer.TOO_LATE
        self._monitor.nudge()
        return CancelAnswer.ACCEPTED

    def nudge(self) -> None:
        """Do now what would be done after a pause."""
        self._monitor.nudge()

    # Before the migrate call -----------------------------------------------------------------------------

    async def _prepare(self) -> bool:
        """Up to ``TargetReady``; False when the attempt ended."""
        await self._enter(Phase.PENDING)
        if await self._cancelled() or not await self._earlier_is_over():
            return False
        reply = await self._reply()
        if reply is None:
            return False
        if reply.findings:
            await self._fail(Cause.REFUSED, "the target refuses: " + "; ".join(reply.findings))
            return False
        await self._enter(Phase.TARGET_READY, reply=reply)
        return not await self._cancelled(release=True)

    async def _earlier_is_over(self) -> bool:
        """The target has nothing of an attempt before this one; False when the attempt ended."""
        for earlier in self.record.earlier:
            self._publish(self._monitor.phase_progress(self.record.phase, self.record.steps[-1].reason))
            over = await let_go(self._ledger, self._peer, self._clock, self._monitor.pause)
            if await self._cancelled():
                return False
            if not over:
                reason = f"{earlier.reason}; not tried again, for the target does not answer"
                await self._fail(earlier.cause, reason)
                return False
        return True

    async def _reply(self) -> PrepareReply | None:
        """The target's answer, as soon as it takes another migration; None when the attempt ended."""
        gives_up = self._clock.monotonic() + BUSY_S
        while True:
            request = await self._request()
            if request is None:
                return None
            await self._enter(Phase.PREPARING_TARGET)
            reply = await self._ask_target(request)
            if reply is None or not reply.busy or self._clock.monotonic() > gives_up:
                return reply
            self._publish(self._monitor.phase_progress(Phase.PREPARING_TARGET, reply.findings[0]))
            if not await self._monitor.pause(BUSY_AGAIN_S):
                continue
            if await self._cancelled():
                return None

    async def _request(self) -> PrepareRequest | None:
        outgoing = self.record.outgoing
        try:
            async with deadline("reading the domain", READ_DEADLINE_S):
                domain = await self._hypervisor.domain(outgoing.uuid)
                xml = await self._hypervisor.domain_xml(outgoing.uuid, migratable=True)
        except LauncherError as error:
            await self._fail(Cause.SOURCE_UNABLE, str(error))
            return None
        why = unfit(domain.state, domain.reason)
        if why:
            await self._fail(Cause.SOURCE_UNABLE, why)
            return None
        # What libvirt says now counts, not what was known when the migration was asked for.
        paused = domain.state is DomainState.PAUSED
        self._ledger.note(outgoing=msgspec.structs.replace(outgoing, user_paused=paused))
        return PrepareRequest(
            attempt=self.record.token,
            source_node=outgoing.source_node,
            vmi=self._material.vmi,
            domain_xml=xml,
            companions=self._material.companions,
            source_libvirt_version=self._material.libvirt_version,
            source_qemu_version=self._material.qemu_version,
            tls=encrypted(outgoing),
            deadline_s=self._material.deadline_s,
            disks=self._material.disks,
            copied_bytes=self._material.copied_bytes,
            migration_id=outgoing.migration_id,
            notice=self._material.notice,
            network=self.record.network,
            moved=self._material.moved,
            devices=self._material.devices,
        )

    async def _ask_target(self, request: PrepareRequest) -> PrepareReply | None:
        """The target's answer; a target that is away for a moment is asked again."""
        gives_up = self._clock.monotonic() + AWAY_S
        while True:
            try:
                async with deadline("preparing the target", PREPARE_DEADLINE_S):
                    return await self._peer.prepare(request)
            except LauncherError as error:
                away = isinstance(error, Unavailable | TimedOut)
                again = isinstance(error, Unavailable) and self._clock.monotonic() < gives_up
                if again and not self.record.cancel:
                    await self._monitor.pause(PREPARE_AGAIN_S)
                if await self._cancelled(release=True):
                    return None
                if again:
                    continue
                await self._release("the source gave up preparing")
                await self._fail(Cause.TARGET_UNREACHABLE if away else Cause.REFUSED, str(error))
                return None

    async def _cancelled(self, *, release: bool = False) -> bool:
        """End the attempt if somebody wants that. Only before the migrate call."""
        if not self.record.cancel:
            return False
        if release:
            await self._release("cancelled")
        await self._fail(Cause.CANCELLED, "cancelled before the migration began")
        return True

    async def _release(self, reason: str) -> None:
        """Give the target's reservation back; a target that does not hear it lets the lease run out."""
        try:
            async with deadline("releasing the target", READ_DEADLINE_S):
                await self._peer.finish(self.record.token, succeeded=False, reason=reason)
        except LauncherError as error:
            self._ledger.step_taken("release failed", str(error))

    async def _unplug(self) -> bool:
        """Have the guest give back what cannot move with it; False when the attempt ended."""
        if not self.record.outgoing.unplug:
            return True
        # Written first, for people: what the guest has to have again is seen, not remembered.
        self._ledger.step_taken("unplug", ", ".join(self.record.outgoing.unplug))
        await self._ledger.save()
        self._publish(self._monitor.phase_progress(self.record.phase, "the guest gives its devices back"))
        try:
            unplugging = Unplugging(self._hypervisor, self._clock, self.record.outgoing)
            why = await unplugging.take(lambda: not self.record.cancel)
        except NotFound as error:
            why = str(error)
        if why:
            await self._release("the guest kept its devices")
            await self._fail(Cause.HOST_DEVICE, why)
            return False
        return not await self._cancelled(release=True)

    # The migrate call and after --------------------------------------------------------------------------

    async def _migrate(self) -> None:
        record = self.record
        if record.reply is None:
            await self._fail(Cause.SOURCE_UNABLE, "there is no answer of the target to migrate by")
            return
        # From here on the journal says that a job may run; a restart looks for it before anything else.
        await self._enter(Phase.RUNNING, job_began=self._clock.monotonic())
        if unwritten := self._ledger.journal_error:
            await self._release("the source could not write it down")
            await self._fail(Cause.SOURCE_UNABLE, f"the migration cannot be written down: {unwritten}")
            return
        await self._monitor.before()
        # It may have come while the last save or action was waited for.
        if await self._cancelled(release=True):
            return
        self._ledger.note(job_began=self._clock.monotonic())
        params = migrate_params(record.outgoing, record.reply, libvirt_version=self._material.libvirt_version)
        call = asyncio.ensure_future(self._hypervisor.migrate(record.outgoing.uuid, params))
        try:
            ending = await self._monitor.watch(call)
        finally:
            # Of an agent that stops: its wait ends, the job goes on in libvirt and is adopted later.
            if not call.done():
                call.cancel()
        await self._end(ending)

    async def _end(self, ending: Ending) -> None:
        """The job is gone: find the owner, then write the end."""
        await self._ledger.change(call_error=ending.error or self.record.call_error)
        final = ending.final or await self._completed_stats()
        record = self.record
        cause, reason = self._why(final)
        resolver = Resolver(
            self._hypervisor,
            self._peer,
            self._clock,
            attempt=record.token,
            uuid=record.outgoing.uuid,
            never_left=ending.aborted,
        )
        # Post-copy that broke is not waited on: it is resumed.
        limit_s = LOOK_S if record.post_copy and not ending.returned else RESOLVE_S
        resolved = await resolver.resolve(suspended=record.suspended, reason=reason, limit_s=limit_s)
        if in_halves(resolved):
            recovery = Recovery(
                self._hypervisor,
                self._ledger,
                self._monitor,
                resolver,
                self._peer,
                self._clock,
                self._interrupted,
            )
            ending, resolved = await recovery.run(reason)
            final = ending.final or await self._completed_stats() or final
            reason = ending.error or reason
        if resolved.verdict is Verdict.HALF_LOST:
            resolved = await give_up(self._ledger, resolver, resolved, reason)
        if self.record.given_up and resolved.verdict in OVER:
            await self._fail(self.record.cause, self.record.given_up, final=final)
            return
        proven = resolved.source is SourceSide.MIGRATED
        if resolved.verdict is Verdict.TARGET_OWNS:
            await self._succeed(final, resolved.note, confirmed=True)
        elif resolved.verdict is Verdict.WAIT and (ending.returned or proven):
            note = "the target's agent has not confirmed it yet; the source's definition is kept until then"
            await self._succeed(final, note, confirmed=False)
        else:
            self._ledger.note(untold=not resolved.told, given_up=left_behind(resolved))
            cause, reason = failure(resolved, cause, reason, post_copy=record.post_copy)
            await self._fail(cause, reason, final=final)

    def _interrupted(self, note: str) -> None:
        self._publish(self._monitor.phase_progress(Phase.RUNNING, note))

    def _why(self, final: JobStats | None) -> tuple[Cause, str]:
        """Why the job ended, should it turn out that the guest stayed."""
        record = self.record
        if record.abort_cause:
            return record.abort_cause, record.abort_reason
        if record.call_error:
            still_s = self._monitor.series.still_s()
            return cause_of(record.call_error, still_s=still_s), record.call_error
        if final is not None and final.error:
            return Cause.HYPERVISOR, final.error
        return Cause.INTERRUPTED, "the migration was gone when the agent looked again"

    async def _succeed(self, final: JobStats | None, note: str, *, confirmed: bool) -> None:
        if self.record.cancel:
            note = "; ".join(filter(None, ("the request to cancel came too late", note)))
        reply = self.record.reply
        if reply is not None:  # Its documents are most of what is remembered of a migration for a long time.
            reply = msgspec.structs.replace(reply, destination_xml="", persistent_xml="")
        await self._enter(
            Phase.SUCCEEDED,
            reply=reply,
            reason=note,
            confirmed=confirmed,
            report=self._report(note, final, succeeded=True),
            interrupted="",
            interrupted_at=None,
        )

    async def _fail(self, cause: Cause, reason: str, *, final: JobStats | None = None) -> None:
        report = self._report(reason, final, succeeded=False)
        await self._enter(Phase.FAILED, cause=cause, reason=reason, report=report)

    def _report(self, reason: str, final: JobStats | None, *, succeeded: bool) -> MigrationReport:
        record = self.record
        report = make_report(
            succeeded=succeeded,
            reason=reason,
            final=final,
            samples=self._monitor.series.samples,
            steps=record.steps,
            elapsed_s=self._ledger.elapsed,
            post_copy=record.post_copy,
        )
        return msgspec.structs.replace(
            report,
            predicted_downtime_ms=self._monitor.series.predicted_ms,
            earlier=tuple(one.report for one in record.earlier),
        )

    async def _confirm_late(self) -> None:
        """The migration succeeded but the target had not confirmed; ask once more."""
        record = self.record
        resolver = Resolver(
            self._hypervisor, self._peer, self._clock, attempt=record.token, uuid=record.outgoing.uuid
        )
        resolved = await resolver.resolve(suspended=record.suspended, reason="", limit_s=READ_DEADLINE_S)
        if resolved.verdict is Verdict.TARGET_OWNS:
            await self._ledger.change(confirmed=True, reason=resolved.note)

    async def _completed_stats(self) -> JobStats | None:
        try:
            async with deadline("reading the final statistics", READ_DEADLINE_S):
                stats = await self._hypervisor.completed_job_stats(self.record.outgoing.uuid)
        except HypervisorUnavailable:
            raise
        except (NotFound, LauncherError):
            return None
        # Statistics of an older job of the domain are not this one's.
        return stats if stats.operation in ("", "migration-out") and stats.kind != "none" else None

    async def _enter(self, phase: Phase, **changes: Any) -> None:
        """Go on to ``phase``; an attempt that is prepared again after a restart does not go back."""
        if _ORDER.index(phase) < _ORDER.index(self.record.phase):
            await self._ledger.change(**changes)
            return
        await self._ledger.enter(phase, **changes)
        self._publish(self._monitor.phase_progress(phase))
