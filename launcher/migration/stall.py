# SPDX-License-Identifier: Apache-2.0
"""KubeVirt's stall detector, bit by bit as it decides, for comparison and replay. Pure.

At each pass it keeps the smallest remaining sizes of a sliding window; when a pass is no better than the best
before the window (less a margin) the migration has stalled for good. From then on it waits for a pass
near the best one, relaxing that target on a shrinking schedule, and switches over there: by post-copy,
by force, within the consented downtime, or it aborts. Whole seconds, truncation and the unsigned age of a
candidate are as in the original; docs/deviations-migration.md lists what is wrong with them.
"""

from __future__ import annotations

import math

import msgspec

from launcher.migration.cause import Cause
from launcher.migration.options import QEMU_DEFAULT_DOWNTIME_MS, QEMU_MAX_DOWNTIME_MS, Options
from launcher.migration.policy import Abort, Action, Decision, Outcome, SetMaxDowntime, StartPostCopy
from launcher.migration.ramp import milliseconds
from launcher.migration.sample import Sample

_MAX_ESTIMATE_MS = 0xFFFFFFFF
_UINT64 = 1 << 64


class Record(msgspec.Struct, frozen=True, array_like=True):
    """What remained at a time of libvirt's job clock."""

    job_ms: int
    remaining: int


class Undo(msgspec.Struct, frozen=True, kw_only=True):
    """What a switch changed before its call was known to work."""

    mode: str
    acceptable_s: int
    switch_by_s: int


class StallState(msgspec.Struct, frozen=True, kw_only=True):
    """``candidates`` fall strictly; ``outside`` is the best that left the window; ``history`` is what
    remained at each pass since the stall, ascending. ``mode`` as in the API: PreCopy, Paused, PostCopy."""

    acceptable_s: int
    switch_by_s: int
    candidates: tuple[Record, ...] = ()
    outside: Record | None = None
    stalled: bool = False
    history: tuple[int, ...] = ()
    target: int = 0
    patience_ms: int = 0
    relax_at_ms: int = 0
    bandwidth: float = 0.0
    switched: bool = False
    mode: str = "PreCopy"
    aborting: bool = False
    limit_asked: bool = False
    limit_set: bool = False
    record: Record = Record(0, 0)
    undo: Undo | None = None


class StallDetector:
    """The detector as a policy of its own: it runs instead of ramp and timeouts."""

    name = "classic-stall"

    def __init__(self, options: Options, *, acceptable_s: int, vfio: bool) -> None:
        self._consented_ms = options.max_downtime_ms
        self._post_copy = options.allow_post_copy and not vfio
        self._disruption = options.allow_workload_disruption
        self._options = options.stall
        self._acceptable_s = acceptable_s

    def initial(self) -> StallState:
        """The state before the first sample."""
        return StallState(acceptable_s=self._acceptable_s, switch_by_s=self._acceptable_s)

    def encode(self, state: StallState) -> str:
        """See ``Policy``."""
        return msgspec.json.encode(state).decode()

    def decode(self, text: str) -> StallState:
        """See ``Policy``."""
        return msgspec.json.decode(text, type=StallState)

    def step(self, state: StallState, sample: Sample) -> Decision[StallState]:
        """Judge one sample; ``label`` is the detector's verdict, empty when it was not asked."""
        actions: list[Action] = []
        if not state.limit_set:
            first = min(self._consented_ms, QEMU_DEFAULT_DOWNTIME_MS)
            actions.append(SetMaxDowntime(ms=first, reason="stall detector: limit while it watches"))
            state = msgspec.structs.replace(state, limit_asked=True)
        if state.mode == "PreCopy" and sample.stopped_for_switchover:
            state = msgspec.structs.replace(state, mode="Paused")
        if state.aborting:
            return Decision(state=state, actions=tuple(actions))
        label = ""
        now_s = milliseconds(sample.t) // 1000
        if sample.remaining is not None and sample.iteration is not None and sample.job != "none":
            job_ms = milliseconds(sample.t) if sample.job_ms is None else sample.job_ms
            record = Record(job_ms, sample.remaining)
            if sample.boundary:
                state = msgspec.structs.replace(state, record=record)
                state, due = self._pass(state, record)
                if due:
                    label = self._decide(state, record.remaining, now_s)
                    state, action = self._act(state, label, now_s)
                    actions.extend(action)
            elif state.mode in ("Paused", "PostCopy"):
                state = msgspec.structs.replace(state, record=record)
            elif sample.bandwidth:
                state = msgspec.structs.replace(state, bandwidth=self._average(state, sample.bandwidth))
        state, action = self._timeouts(state, now_s)
        actions.extend(action)
        return Decision(state=state, actions=tuple(actions), label=label)

    def settle(self, state: StallState, outcome: Outcome) -> StallState:
        """Take note of an action. A failed switch is taken back; a failed abort only opens the door again."""
        replace = msgspec.structs.replace
        if state.limit_asked:  # It is always the first of its step.
            return replace(state, limit_asked=False, limit_set=outcome.ok)
        if isinstance(outcome.action, Abort):
            return replace(state, aborting=outcome.ok)
        undo = state.undo
        if outcome.ok or undo is None:
            return replace(state, undo=None)
        return replace(
            state,
            switched=False,
            mode=undo.mode,
            acceptable_s=undo.acceptable_s,
            switch_by_s=undo.switch_by_s,
            undo=None,
        )

    def _average(self, state: StallState, bandwidth: int) -> float:
        alpha = self._options.ewma_alpha
        if state.bandwidth == 0:
            return float(bandwidth)
        return alpha * bandwidth + (1 - alpha) * state.bandwidth

    def _pass(self, state: StallState, record: Record) -> tuple[StallState, bool]:
        """Take note of a pass; True: a decision is due."""
        if state.bandwidth == 0 or state.switched:
            return state, False
        state = self._remember(state, record)
        if state.stalled:
            return self._relax(state, record), True
        outside = state.outside
        margin = 1 - self._options.margin_percent / 100
        if outside is None or record.remaining < int(outside.remaining * margin):
            return state, False
        window_ms = self._options.window_s * 1000
        return msgspec.structs.replace(
            state,
            stalled=True,
            target=min((outside.remaining, *(c.remaining for c in state.candidates))),
            history=(),
            patience_ms=window_ms,
            relax_at_ms=record.job_ms + window_ms,
        ), True

    def _remember(self, state: StallState, record: Record) -> StallState:
        window_ms = self._options.window_s * 1000
        candidates, outside = list(state.candidates), state.outside
        while candidates and (record.job_ms - candidates[0].job_ms) % _UINT64 >= window_ms:
            oldest = candidates.pop(0)
            if outside is None or oldest.remaining < outside.remaining:
                outside = oldest
        worse = outside is not None and record.remaining > outside.remaining
        if not worse and not (candidates and record.remaining >= candidates[-1].remaining):
            candidates.append(record)
        return msgspec.structs.replace(state, candidates=tuple(candidates), outside=outside)

    def _relax(self, state: StallState, record: Record) -> StallState:
        history = tuple(sorted((*state.history, record.remaining)))
        if record.job_ms < state.relax_at_ms:
            return msgspec.structs.replace(state, history=history)
        patience_ms = int(state.patience_ms * self._options.patience_decay)
        return msgspec.structs.replace(
            state,
            target=history[0],
            history=history[1:],
            patience_ms=patience_ms,
            relax_at_ms=record.job_ms + patience_ms,
        )

    def _decide(self, state: StallState, remaining: int, now_s: int) -> str:
        """The verdict at a pass, by KubeVirt's name; ``none`` to go on."""
        near = int(state.target * (1 + self._options.margin_percent / 100))
        if self._options.search_local_minima and remaining > near:
            return "none"
        estimate = _estimate(state, remaining)
        if not self._fits(state, estimate, now_s):
            return "none"
        if self._disruption:
            return "postCopy" if self._post_copy else "hardStopAndCopy"
        if estimate <= max(self._consented_ms, self._consented_ms * self._options.tolerated_factor):
            return "softStopAndCopy"
        return "abort"

    def _act(self, state: StallState, label: str, now_s: int) -> tuple[StallState, tuple[Action, ...]]:
        replace = msgspec.structs.replace
        by = now_s + self._options.switchover_s
        match label:
            case "postCopy":
                switched = replace(state, switched=True, mode="PostCopy", undo=_undo(state))
                return switched, (StartPostCopy(reason="stalled, and the target may take over"),)
            case "hardStopAndCopy":
                switched = replace(state, switched=True, switch_by_s=by, undo=_undo(state))
                action = SetMaxDowntime(ms=QEMU_MAX_DOWNTIME_MS, reason="stalled, disruption is allowed")
                return switched, (action,)
            case "softStopAndCopy":
                switched = replace(state, switched=True, switch_by_s=by, undo=_undo(state))
                return switched, (SetMaxDowntime(ms=self._consented_ms, reason="stalled near the limit"),)
            case "abort":
                reason = "stalled, and the downtime would be longer than allowed"
                return replace(state, switched=True, aborting=True), (
                    Abort(reason=reason, cause=Cause.STALLED),
                )
        return state, ()

    def _timeouts(self, state: StallState, now_s: int) -> tuple[StallState, tuple[Action, ...]]:
        limit = state.acceptable_s if state.mode == "Paused" else state.switch_by_s
        if state.acceptable_s == 0 or now_s <= limit or state.mode == "PostCopy" or state.aborting:
            return state, ()
        replace = msgspec.structs.replace
        why = f"not complete after {limit} s"
        estimate = _estimate(state, state.record.remaining)
        possible = not state.switched and self._fits(state, estimate, now_s)
        if possible and self._post_copy:
            switched = replace(state, switched=True, mode="PostCopy", undo=_undo(state))
            return switched, (StartPostCopy(reason=why),)
        if possible and self._disruption:
            switched = replace(
                state,
                switched=True,
                acceptable_s=int(state.acceptable_s * self._options.completion_factor),
                switch_by_s=now_s + self._options.switchover_s,
                undo=_undo(state),
            )
            return switched, (SetMaxDowntime(ms=QEMU_MAX_DOWNTIME_MS, reason=why),)
        reason = why if state.bandwidth else f"{why}, and no bandwidth was ever seen"
        return replace(state, aborting=True), (Abort(reason=reason, cause=Cause.COMPLETION_TIMEOUT),)

    def _fits(self, state: StallState, estimate_ms: int, now_s: int) -> bool:
        """Sending the rest ends before the deadline, lengthened by the completion factor."""
        deadline_s = int(state.acceptable_s * self._options.completion_factor)
        return state.bandwidth != 0 and estimate_ms <= (deadline_s - now_s) * 1000


def _undo(state: StallState) -> Undo:
    return Undo(mode=state.mode, acceptable_s=state.acceptable_s, switch_by_s=state.switch_by_s)


def _estimate(state: StallState, remaining: int) -> int:
    """Milliseconds to send ``remaining`` at the averaged bandwidth, 0 when that is unknown."""
    if state.bandwidth == 0:
        return 0
    return min(math.trunc(remaining / (state.bandwidth / 1000)), _MAX_ESTIMATE_MS)
