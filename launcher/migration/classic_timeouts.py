# SPDX-License-Identifier: Apache-2.0
"""KubeVirt's rules without the stall detector, as they are, for comparison and replay. Pure.

Kept with their oddities: progress is any fall against the sample before; times are compared in whole
seconds; an assist that keeps failing hides the timeouts behind it; post-copy counts when the call returns.
"""

from __future__ import annotations

import msgspec

from launcher.migration.cause import Cause
from launcher.migration.options import QEMU_MAX_DOWNTIME_MS, Options
from launcher.migration.policy import Abort, Action, Outcome, PauseGuest, SetMaxDowntime, StartPostCopy
from launcher.migration.ramp import milliseconds
from launcher.migration.sample import Sample


class ClassicTimeoutState(msgspec.Struct, frozen=True, kw_only=True):
    """``mode`` is ``PreCopy``, ``Paused`` or ``PostCopy``; ``asked`` the action whose result is awaited."""

    acceptable_s: int
    progress_ms: int = 0
    remaining: int = 0
    mode: str = "PreCopy"
    asked: str = ""
    aborting: bool = False


class ClassicTimeouts:
    """The four rules, in order; the first that matches wins."""

    def __init__(self, options: Options, *, acceptable_s: int, vfio: bool) -> None:
        self._options = options
        self._acceptable_s = acceptable_s
        self._vfio = vfio

    def initial(self) -> ClassicTimeoutState:
        """The state before the first sample."""
        return ClassicTimeoutState(acceptable_s=self._acceptable_s)

    def step(self, state: ClassicTimeoutState, sample: Sample) -> tuple[ClassicTimeoutState, Action | None]:
        """The state and what to do, if anything."""
        now = milliseconds(sample.t)
        remaining = sample.remaining or 0
        moved = state.remaining == 0 or remaining < state.remaining
        state = msgspec.structs.replace(
            state, remaining=remaining, progress_ms=now if moved else state.progress_ms
        )
        if state.mode == "PostCopy":
            return state, None
        late = state.acceptable_s != 0 and now // 1000 > state.acceptable_s
        if self._options.allow_workload_disruption and late and state.mode != "Paused":
            return self._assist(state)
        limit = self._options.progress_timeout_s
        if limit and (now - state.progress_ms) // 1000 > limit:
            return self._abort(state, f"no progress for more than {limit} s", Cause.PROGRESS_TIMEOUT)
        if late:
            reason = f"not complete after {state.acceptable_s} s"
            return self._abort(state, reason, Cause.COMPLETION_TIMEOUT)
        return state, None

    def settle(self, state: ClassicTimeoutState, outcome: Outcome) -> ClassicTimeoutState:
        """Take note of an action."""
        replace = msgspec.structs.replace
        match outcome.action:
            case Abort():
                return replace(state, aborting=outcome.ok)
            case StartPostCopy() if outcome.ok:
                return replace(state, mode="PostCopy", asked="")
            case PauseGuest() if outcome.ok:
                return replace(state, mode="Paused", acceptable_s=2 * state.acceptable_s, asked="")
            case SetMaxDowntime() if outcome.ok and state.asked == "downtime":
                return replace(state, mode="Paused", acceptable_s=2 * state.acceptable_s, asked="")
        return replace(state, asked="")

    def _assist(self, state: ClassicTimeoutState) -> tuple[ClassicTimeoutState, Action]:
        why = f"not complete after {state.acceptable_s} s"
        replace = msgspec.structs.replace
        if self._vfio:
            longest = min(2 * state.acceptable_s * 1000, QEMU_MAX_DOWNTIME_MS)
            return replace(state, asked="downtime"), SetMaxDowntime(ms=longest, reason=why)
        if self._options.allow_post_copy:
            return replace(state, asked="post-copy"), StartPostCopy(reason=why)
        return replace(state, asked="pause"), PauseGuest(reason=why)

    def _abort(
        self, state: ClassicTimeoutState, reason: str, cause: Cause
    ) -> tuple[ClassicTimeoutState, Action | None]:
        if state.aborting:
            return state, None
        return msgspec.structs.replace(state, aborting=True), Abort(reason=reason, cause=cause)
