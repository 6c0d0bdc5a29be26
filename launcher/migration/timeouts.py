# SPDX-License-Identifier: Apache-2.0
"""Progress and completion timeouts, and what may be done before a migration is given up. Pure.

When the completion timeout passes and disruption is allowed, one of these is tried, and the timeout doubles:
post-copy (if allowed and no VFIO device is attached), a downtime as long as twice the timeout (VFIO), or the
guest is paused. Else, and when the doubled timeout passes too, the migration is aborted. A migration in
post-copy has no timeout: it cannot go back.
"""

from __future__ import annotations

import msgspec

from launcher.migration.cause import Cause
from launcher.migration.options import QEMU_MAX_DOWNTIME_MS, Options, Workload
from launcher.migration.policy import Abort, Action, Outcome, PauseGuest, SetMaxDowntime, StartPostCopy
from launcher.migration.ramp import milliseconds
from launcher.migration.sample import Sample

ASSIST_AGAIN_MS = 2000
ASSIST_TRIES = 3
ABORT_AGAIN_MS = 5000
QUIET_MS = 5000
"""Post-copy is not begun on a link over which nothing came for so long."""
SWITCHOVER_GRACE_MS = 60_000
"""A guest that the hypervisor stopped to end the migration gets so long, whatever the deadline says.
The API's default of ``switchoverTimeout``."""


class TimeoutState(msgspec.Struct, frozen=True, kw_only=True):
    """Times are milliseconds of the job. ``assist`` was asked for last, ``assisted``: it worked."""

    progress_ms: int = 0
    remaining: int | None = None
    processed: int | None = None
    stopped_ms: int | None = None
    assist: str = ""
    assisted: bool = False
    tries: int = 0
    next_try_ms: int = 0
    post_copy_refused: bool = False
    aborting: bool = False
    abort_again_ms: int = 0


class Timeouts:
    """What runs."""

    def __init__(self, options: Options, workload: Workload) -> None:
        self._options = options
        self._vfio = workload.vfio
        self._deadline_ms = options.completion_timeout_per_gib_s * workload.started_gib * 1000
        self._progress_ms = options.progress_timeout_s * 1000

    @property
    def deadline_ms(self) -> int:
        """When the completion timeout passes for the first time; 0: never."""
        return self._deadline_ms

    def step(self, state: TimeoutState, sample: Sample) -> tuple[TimeoutState, Action | None]:
        """The state and what to do, if anything."""
        now = milliseconds(sample.t)
        state = _observe(state, sample, now)
        if sample.post_copy or state.aborting or now < state.abort_again_ms:
            return state, None
        quiet = now - state.progress_ms
        if self._progress_ms and quiet > self._progress_ms:
            reason = f"no progress for {quiet // 1000} s (progressTimeout {self._progress_ms // 1000} s)"
            return _aborting(state), Abort(reason=reason, cause=Cause.PROGRESS_TIMEOUT)
        if not self._deadline_ms or now <= self._limit(state):
            return state, None
        if self._options.allow_workload_disruption and not state.assisted:
            return self._assist(state, sample, now, quiet)
        return self._give_up(state, now)

    def settle(self, state: TimeoutState, outcome: Outcome) -> TimeoutState:
        """Take note of an action; failures are retried here, a few times and not at once."""
        now = milliseconds(outcome.t)
        replace = msgspec.structs.replace
        match outcome.action:
            case Abort():
                if outcome.ok:
                    return replace(state, aborting=True)
                return replace(state, aborting=False, abort_again_ms=now + ABORT_AGAIN_MS)
            case StartPostCopy() if state.assist == "post-copy":
                if outcome.ok:
                    return replace(state, assisted=True)
                refused = state.tries + 1 >= ASSIST_TRIES
                tries = 0 if refused else state.tries + 1
                return replace(
                    state, tries=tries, post_copy_refused=refused, next_try_ms=now + ASSIST_AGAIN_MS
                )
            case PauseGuest() | SetMaxDowntime() if _is_assist(outcome.action, state):
                if outcome.ok:
                    return replace(state, assisted=True)
                return replace(state, tries=state.tries + 1, next_try_ms=now + ASSIST_AGAIN_MS)
        return state

    def _limit(self, state: TimeoutState) -> int:
        limit = self._deadline_ms * (2 if state.assisted else 1)
        if state.stopped_ms is not None:
            limit = max(limit, state.stopped_ms + SWITCHOVER_GRACE_MS)
        return limit

    def _assist(
        self, state: TimeoutState, sample: Sample, now: int, quiet: int
    ) -> tuple[TimeoutState, Action | None]:
        if state.tries >= ASSIST_TRIES or now > 2 * self._deadline_ms:
            return self._give_up(state, now)
        if now < state.next_try_ms:
            return state, None
        why = f"completion timeout of {self._deadline_ms // 1000} s passed"
        replace = msgspec.structs.replace
        if self._vfio:
            longest = min(2 * self._deadline_ms, QEMU_MAX_DOWNTIME_MS)
            return replace(state, assist="downtime"), SetMaxDowntime(ms=longest, reason=why)
        if self._options.allow_post_copy and not state.post_copy_refused:
            # Before the first pass libvirt refuses it, and over a dead link there is no way back.
            if not sample.iteration or quiet > QUIET_MS:
                return state, None
            return replace(state, assist="post-copy"), StartPostCopy(reason=why)
        return replace(state, assist="pause"), PauseGuest(reason=why)

    def _give_up(self, state: TimeoutState, now: int) -> tuple[TimeoutState, Action | None]:
        limit = self._limit(state) // 1000
        reason = f"not complete after {now // 1000} s (completion timeout {limit} s)"
        return _aborting(state), Abort(reason=reason, cause=Cause.COMPLETION_TIMEOUT)


def _observe(state: TimeoutState, sample: Sample, now: int) -> TimeoutState:
    """Progress is what the API calls so: data moved. What remains fell, or more was sent."""
    fell = sample.remaining is not None and (state.remaining is None or sample.remaining < state.remaining)
    sent = sample.processed is not None and (state.processed is None or sample.processed > state.processed)
    stopped = state.stopped_ms
    if not sample.stopped_for_switchover:
        stopped = None
    elif stopped is None:
        stopped = now
    return msgspec.structs.replace(
        state,
        progress_ms=now if fell or sent else state.progress_ms,
        remaining=state.remaining if sample.remaining is None else sample.remaining,
        processed=state.processed if sample.processed is None else sample.processed,
        stopped_ms=stopped,
    )


def _aborting(state: TimeoutState) -> TimeoutState:
    return msgspec.structs.replace(state, aborting=True)


def _is_assist(action: PauseGuest | SetMaxDowntime, state: TimeoutState) -> bool:
    return state.assist == ("pause" if isinstance(action, PauseGuest) else "downtime")
