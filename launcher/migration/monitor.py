# SPDX-License-Identifier: Apache-2.0
"""Watches one running migration job: reads, asks the policy, performs what it says. Decides nothing itself.

It polls every 400 ms (KubeVirt's period) and looks at once when a pass begins; a stream of passes does
not starve the poll. Reads and actions have deadlines of their own, so a hypervisor that hangs delays a
look but does not end the watch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from launcher.errors import HypervisorUnavailable, LauncherError, MigrationAborted, NotFound, TimedOut
from launcher.hypervisor.port import (
    ConnectionEvent,
    DomainRecord,
    DomainState,
    Event,
    JobCompletedEvent,
    JobStats,
    LifecycleEvent,
    MigrationIterationEvent,
)
from launcher.migration.attempt import Phase
from launcher.migration.cause import Cause
from launcher.migration.clock import Clock
from launcher.migration.deadline import deadline
from launcher.migration.domains import Domains
from launcher.migration.ledger import Ledger
from launcher.migration.policy import (
    Abort,
    Action,
    BreakPostCopy,
    Outcome,
    PauseGuest,
    Policy,
    SetMaxDowntime,
    StartPostCopy,
)
from launcher.migration.progress import MigrationProgress
from launcher.migration.recording import Acted, Decided, Looked, NoRecorder, Recorder, Resumed
from launcher.migration.sample import Sample, sample_from_stats
from launcher.migration.series import Series

POLL_S = 0.4
READ_DEADLINE_S = 10.0
"""For one read of statistics or state."""
ACTION_DEADLINE_S = 15.0
"""For one action; libvirt's own calls can hang while the migration thread is blocked."""
ABORT_AGAIN_S = 10.0
"""A job that still runs this long after an abort that worked is aborted again."""
HELP_S = 2.0
"""A job that still runs so long after an abort that worked may wait in vain, see ``_help_abort``."""
CANCELLING = "cancelling"
"""QEMU's word (MigrationStatus) for a stream that is about to end."""
STREAM_ENDED = frozenset({"cancelled", "failed"})
"""And for one that ended without the guest."""
CHECKPOINT_S = 5.0
"""At most this much of a policy's memory is lost with the process."""
CHECKPOINT_PASS_S = 1.0
"""The same, when a pass just began."""
GONE_S = 2.0
"""A job that is not ours counts as gone when it was not seen for so long: a call that an older agent
sent just before it died may still be about to begin."""
DETACHED_LIMIT_S = 600.0
"""How long to wait for libvirt to answer again before the agent takes the attempt over."""

_ACTIVE = frozenset({"bounded", "unbounded"})


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """How a watch ended: the job is gone.

    ``returned``: the migrate call was ours and came back well; ``error`` is what it said otherwise, empty
    when it was not ours; ``aborted``: it said that the job was aborted, so that nothing was handed over;
    ``final`` are libvirt's last statistics, if an event brought them.
    """

    returned: bool
    error: str = ""
    aborted: bool = False
    final: JobStats | None = None


class Monitor:
    """One watch over one domain's outgoing migration."""

    def __init__(
        self,
        hypervisor: Domains,
        ledger: Ledger,
        policy: Policy[Any],
        clock: Clock,
        publish: Callable[[MigrationProgress], None],
        recorder: Recorder | None = None,
    ) -> None:
        self._recorder: Recorder = recorder or NoRecorder()
        self._hypervisor = hypervisor
        self._ledger = ledger
        self._policy = policy
        self._clock = clock
        self._publish = publish
        self._uuid = ledger.record.outgoing.uuid
        state = ledger.record.policy_state
        self._state: Any = _restored(policy, state)
        self.series = Series(ledger.record.outgoing.options.switchover_bps)
        self._wake = asyncio.Event()
        self._boundary = False
        self._final: JobStats | None = None
        self._post_copy = False
        self._aborted_at: float | None = None
        self._helped = False
        self._saved_at = clock.monotonic()
        self._last_failure = ""

    def on_event(self, event: Event) -> None:
        """Take an event of the hypervisor; never blocks."""
        if isinstance(event, ConnectionEvent):
            self._wake.set()
        elif event.uuid != self._uuid:
            return
        elif isinstance(event, MigrationIterationEvent):
            self._boundary = True
            self._wake.set()
        elif isinstance(event, JobCompletedEvent):
            self._final = event.stats
            self._wake.set()
        elif isinstance(event, LifecycleEvent):
            # Post-copy can be over before the next look.
            self._post_copy |= event.event == "suspended" and event.detail.startswith("post-copy")
            self._wake.set()

    def nudge(self) -> None:
        """Look now: something outside changed (a request to cancel)."""
        self._wake.set()

    def phase_progress(self, phase: Phase, note: str = "") -> MigrationProgress:
        """The progress to tell when no job runs: the last numbers there were."""
        last = self.series.last
        if last is None:
            return MigrationProgress(phase=phase.value, elapsed_s=round(self._ledger.elapsed, 3), note=note)
        return self.series.progress(last, phase=phase.value, note=note)

    async def pause(self, seconds: float) -> bool:
        """Wait so long; True when something outside changed meanwhile."""
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            return False
        self._wake.clear()
        return True

    async def before(self) -> None:
        """The first sample, before the migrate call: what it asks for is in force from the first byte."""
        await self._decide(Sample(t=0.0, job="none"))

    async def watch(self, call: asyncio.Task[None] | None) -> Ending:
        """Watch until the job is gone. ``call`` is our migrate call, None when it died with an older agent.

        Raises:
            HypervisorUnavailable: libvirt did not answer for ten minutes; the job may still run.
        """
        if call is not None:
            call.add_done_callback(lambda _: self._wake.set())
        else:
            state = self._ledger.record.policy_state
            self._recorder.note(Resumed(t=self._ledger.elapsed, at=self._clock.now(), state=state))
        silent_since: float | None = None
        missed_since: float | None = None
        while True:
            if call is not None and call.done():
                error = _error_of(call)
                await self._post_copy_began()
                if not isinstance(error, HypervisorUnavailable | TimedOut):
                    return Ending(
                        returned=error is None,
                        error=str(error or ""),
                        aborted=isinstance(error, MigrationAborted),
                        final=self._final,
                    )
                call = None  # The call is lost, the job perhaps not.
            try:
                alive = await self._look(ours=call is not None)
                silent_since = None
            except NotFound:
                alive = call is not None
            except LauncherError as error:
                alive = True
                silent_since = self._clock.monotonic() if silent_since is None else silent_since
                if self._clock.monotonic() - silent_since > DETACHED_LIMIT_S:
                    raise HypervisorUnavailable(
                        f"libvirt did not answer for {DETACHED_LIMIT_S:.0f} s during a migration",
                        hint="the migration may still run; it is looked at again when libvirt answers",
                    ) from error
            if alive:
                missed_since = None
            elif missed_since is None:
                missed_since = self._clock.monotonic()
            elif self._final is not None or self._clock.monotonic() - missed_since >= GONE_S:
                return Ending(returned=False, final=self._final)
            await self._rest()

    async def _rest(self) -> None:
        """Wait for the next poll or something to look at, whichever comes first."""
        await self.pause(POLL_S)
        self._wake.clear()

    async def _look(self, *, ours: bool) -> bool:
        """Read, decide, act, tell. False: no job runs and none of ours is about to."""
        boundary, self._boundary = self._boundary, False
        async with deadline("reading the migration's statistics", READ_DEADLINE_S):
            domain = await self._hypervisor.domain(self._uuid)
            # libvirt refuses to speak of jobs of a domain that is off: there is none.
            off = domain.state in (DomainState.SHUTOFF, DomainState.CRASHED)
            stats = JobStats(kind="none") if off else await self._hypervisor.job_stats(self._uuid)
        if stats.kind not in _ACTIVE:
            if not ours:
                return False
        elif stats.operation not in ("", "migration-out"):
            return ours
        sample = sample_from_stats(
            stats,
            t=self._ledger.elapsed,
            boundary=boundary,
            max_downtime_ms=self._ledger.record.max_downtime_ms,
            domain=domain.state.value,
            reason=domain.reason,
        )
        if stats.kind in _ACTIVE:
            self.series.add(sample)
        self._post_copy |= sample.post_copy
        note = await self._post_copy_began()
        note = await self._decide(sample) or note
        note = await self._cancel(stats, domain) or note
        await self._checkpoint(boundary=boundary)
        if stats.kind in _ACTIVE:
            self._publish(self.series.progress(sample, phase=Phase.RUNNING.value, note=note))
        else:
            self._publish(self.phase_progress(Phase.RUNNING, note))
        return True

    async def _post_copy_began(self) -> str:
        """Write down, once, that the guest runs on the target."""
        if not self._post_copy or self._ledger.record.post_copy:
            return ""
        self._ledger.step_taken("post-copy active", "the guest runs on the target")
        await self._ledger.change(post_copy=True)
        return "post-copy began: the guest runs on the target"

    async def _decide(self, sample: Sample) -> str:
        self._recorder.note(Looked(sample=sample))
        decision = self._policy.step(self._state, sample)
        self._state = decision.state
        outcomes = []
        for action in decision.actions:
            outcome = await self._perform(action)
            self._state = self._policy.settle(self._state, outcome)
            outcomes.append(outcome)
        if outcomes or decision.label:
            self._recorder.note(Decided(t=sample.t, outcomes=tuple(outcomes), label=decision.label))
        if outcomes:
            await self._save()
        return "; ".join(map(_describe, outcomes))

    async def _perform(self, action: Action) -> Outcome:
        """Do one action within its deadline; a failure is an outcome, not an exception."""
        try:
            async with deadline(f"action {type(action).__name__}", ACTION_DEADLINE_S):
                await self._call(action)
        except LauncherError as error:
            if not isinstance(error, TimedOut):  # One that timed out may still happen.
                self._ledger.note(**_undone(action))
            failure = f"{type(action).__name__}: {error}"
            if failure != self._last_failure:
                self._ledger.step_taken(f"{_name(action)} failed", str(error))
                self._last_failure = failure
            return Outcome(action=action, t=self._ledger.elapsed, error=str(error) or "failed")
        self._last_failure = ""
        self._ledger.step_taken(_name(action), action.reason)
        return Outcome(action=action, t=self._ledger.elapsed)

    async def _call(self, action: Action) -> None:
        match action:
            case SetMaxDowntime():
                await self._hypervisor.set_max_downtime(self._uuid, action.ms)
                self._ledger.note(max_downtime_ms=action.ms)
            case StartPostCopy():
                await self._hypervisor.start_postcopy(self._uuid)
            case PauseGuest():
                # Written first: an agent that dies in between must know who stopped the guest.
                await self._ledger.change(suspended=True)
                await self._hypervisor.suspend(self._uuid)
            case BreakPostCopy():
                await self._hypervisor.pause_post_copy(self._uuid)
            case Abort():
                await self._ledger.change(abort_cause=action.cause, abort_reason=action.reason)
                await self._hypervisor.abort_job(self._uuid)
                self._aborted_at, self._helped = self._clock.monotonic(), False

    async def _cancel(self, stats: JobStats, domain: DomainRecord) -> str:
        """Carry out a request to cancel, or an abort that did not take, once there is a job to abort."""
        record = self._ledger.record
        wanted = record.cancel or self._aborted_at is not None
        if not wanted or stats.kind not in _ACTIVE or domain.reason.startswith("post-copy"):
            return ""
        if self._aborted_at is not None and self._clock.monotonic() - self._aborted_at < ABORT_AGAIN_S:
            return await self._help_abort(domain, self._aborted_at)
        again = record.abort_cause and record.abort_cause is not Cause.CANCELLED
        asked = Abort(reason="cancelled on request", cause=Cause.CANCELLED)
        outcome = await self._perform(
            Abort(reason=record.abort_reason, cause=record.abort_cause) if again else asked
        )
        self._recorder.note(Acted(outcome=outcome))
        return _describe(outcome)

    async def _help_abort(self, domain: DomainRecord, aborted_at: float) -> str:
        """Help a job to end that was aborted just when the guest was stopped; once for each abort.

        QEMU (seen with 7.2) then may wait for ever to be let go on. libvirt (seen with 9.0) may take the stop
        for done and wait for ever to see it, while QEMU lets the guest run again: it is stopped once more.
        """
        if self._helped or self._clock.monotonic() - aborted_at < HELP_S:
            return ""
        self._helped = True
        try:
            async with deadline("ending a cancelled stream", ACTION_DEADLINE_S):
                status = await self._hypervisor.stream_status(self._uuid)
                if status == CANCELLING:
                    await self._hypervisor.end_cancelled(self._uuid)
                elif status in STREAM_ENDED and domain.state is DomainState.RUNNING:
                    await self._ledger.change(suspended=True)  # Who stopped it lets it run again.
                    await self._hypervisor.suspend(self._uuid)
                else:
                    return ""
        except LauncherError as error:  # It ended meanwhile, or the next abort tries again.
            self._ledger.step_taken("help the abort failed", str(error))
            return ""
        self._ledger.step_taken("help the abort", f"the job was there {HELP_S:.0f} s later, QEMU: {status}")
        return f"the job is helped to end (QEMU: {status})"

    async def _checkpoint(self, *, boundary: bool) -> None:
        age = self._clock.monotonic() - self._saved_at
        if age >= (CHECKPOINT_PASS_S if boundary else CHECKPOINT_S):
            await self._save()

    async def _save(self) -> None:
        self._saved_at = self._clock.monotonic()
        await self._ledger.change(policy_state=self._policy.encode(self._state))
        try:
            async with deadline("recording the migration", READ_DEADLINE_S):
                await self._recorder.flush()
        except TimedOut:
            self._recorder = NoRecorder()  # It costs the recording, not the guest.


def _restored(policy: Policy[Any], text: str) -> Any:
    """The policy's state as it was written down; from the beginning when a newer agent cannot read it."""
    try:
        return policy.decode(text) if text else policy.initial()
    except msgspec.DecodeError:
        return policy.initial()


def _error_of(call: asyncio.Task[None]) -> LauncherError | None:
    """What our migrate call said; an error that is not ours to understand goes on to the supervisor."""
    error = call.exception()
    if error is None or isinstance(error, LauncherError):
        return error
    raise error


def _undone(action: Action) -> dict[str, Any]:
    """What was written down before an action, taken back."""
    match action:
        case PauseGuest():
            return {"suspended": False}
        case Abort():
            return {"abort_cause": Cause.NONE, "abort_reason": ""}
        case _:
            return {}


def _name(action: Action) -> str:
    match action:
        case SetMaxDowntime():
            return f"max_downtime {action.ms} ms"
        case StartPostCopy():
            return "start post-copy"
        case PauseGuest():
            return "pause guest"
        case BreakPostCopy():
            return "interrupt post-copy"
        case Abort():
            return "abort"


def _describe(outcome: Outcome) -> str:
    if outcome.ok:
        return f"{_name(outcome.action)}: {outcome.action.reason}"
    return f"{_name(outcome.action)} failed: {outcome.error}"
