# SPDX-License-Identifier: Apache-2.0
"""What decides by default: ramp and detector together, deadlines, a watch over the link. Pure.

In this order at every sample, first match wins:

    1 in post-copy    a link that carries nothing is cut for good, so that it can be resumed on a new one
    2 dead link       abort (cause ``link``); progressTimeout does the same for whatever else stands still
    3 guest stopped   it is let go when the end does not come
    4 forced end      what was wanted goes on: ask, wait for an effect, next rung
    5 completion      the timeout passed: force an end if that is consented to, else abort
    6 plateau         see ``plateau``: relax, force an end, or give up
    7 ramp            one more step
"""

from __future__ import annotations

import msgspec

from launcher.migration import link as links
from launcher.migration.cause import Cause
from launcher.migration.link import LinkState
from launcher.migration.options import Options, Workload
from launcher.migration.plateau import Plateau, PlateauState, Verdict
from launcher.migration.policy import (
    Abort,
    Action,
    BreakPostCopy,
    Decision,
    Outcome,
    SetMaxDowntime,
    StartPostCopy,
)
from launcher.migration.ramp import Ramp, RampState, milliseconds
from launcher.migration.sample import Sample
from launcher.migration.switch import Switch, SwitchState
from launcher.units import GIB, ceil_div

ABORT_AGAIN_MS = 5000
POST_COPY_DEAD_MS = 30_000
"""Post-copy over a link that carried nothing for so long is interrupted; the guest waits for pages anyway."""
HOLD_MS = 60_000
"""At least so long is a link waited for that is not healthy when an end is to be forced."""


class StandardState(msgspec.Struct, frozen=True, kw_only=True):
    """The states of all rules. Times are milliseconds of the job.

    ``memory_ms``: when memory began to flow; until then disks are copied, by a clock of their own.
    """

    ramp: RampState = RampState()
    link: LinkState = LinkState()
    plateau: PlateauState = PlateauState()
    switch: SwitchState = SwitchState()
    progress_ms: int = 0
    remaining: int | None = None
    processed: int | None = None
    memory_ms: int | None = None
    aborting: bool = False
    abort_again_ms: int = 0
    broken_ms: int | None = None


class Standard:
    """The composition; ``detector`` None leaves the plateau to the deadlines."""

    def __init__(
        self, name: str, options: Options, workload: Workload, *, ramp: Ramp, detector: Plateau | None
    ) -> None:
        self.name = name
        self._options = options
        self._ramp = ramp
        self._detector = detector
        self._switch = Switch(options, post_copy=may_post_copy(options, workload))
        per_gib_ms = options.completion_timeout_per_gib_s * 1000
        self._disk_ms = per_gib_ms * ceil_div(workload.disk_bytes, GIB)
        self._memory_ms = per_gib_ms * max(ceil_div(workload.memory_bytes, GIB), 1)
        self._progress_ms = options.progress_timeout_s * 1000

    @property
    def deadline_ms(self) -> int:
        """When the completion timeout passes at the latest; 0: never."""
        return self._disk_ms + self._memory_ms

    def initial(self) -> StandardState:
        """See ``Policy``."""
        return StandardState()

    def encode(self, state: StandardState) -> str:
        """See ``Policy``."""
        return msgspec.json.encode(state).decode()

    def decode(self, text: str) -> StandardState:
        """See ``Policy``."""
        return msgspec.json.decode(text, type=StandardState)

    def step(self, state: StandardState, sample: Sample) -> Decision[StandardState]:
        """See ``Policy``; ``label`` is the detector's verdict, if it was asked."""
        now = milliseconds(sample.t)
        state = self._observe(state, sample, now)
        if sample.post_copy:
            return self._in_post_copy(state, now)
        if state.aborting or now < state.abort_again_ms:
            return Decision(state=state)
        for rule in (self._stuck, self._forced, self._late):
            state, action = rule(state, sample, now)
            if action is not None:
                return Decision(state=_marked(state, action), actions=(action,))
        state, action, label = self._at_a_pass(state, sample, now)
        if action is None and not state.switch.wanted:
            ramp, action = self._ramp.step(state.ramp, sample)
            state = msgspec.structs.replace(state, ramp=ramp)
        actions = () if action is None else (action,)
        return Decision(
            state=state if action is None else _marked(state, action), actions=actions, label=label
        )

    def settle(self, state: StandardState, outcome: Outcome) -> StandardState:
        """See ``Policy``; failures are retried by the rule that asked, not at once."""
        now = milliseconds(outcome.t)
        replace = msgspec.structs.replace
        match outcome.action:
            case Abort() if outcome.ok:
                return replace(state, aborting=True)
            case Abort():
                return replace(state, aborting=False, abort_again_ms=now + ABORT_AGAIN_MS)
            case BreakPostCopy():
                return replace(state, broken_ms=now)
        if state.switch.asked:
            return replace(state, switch=self._switch.settle(state.switch, outcome, now))
        if isinstance(outcome.action, SetMaxDowntime):
            state = replace(state, ramp=self._ramp.settle(state.ramp, outcome))
            if outcome.ok and self._detector is not None:
                plateau = self._detector.armed(state.plateau, outcome.action.ms, now)
                state = replace(state, plateau=plateau)
        return state

    def _observe(self, state: StandardState, sample: Sample, now: int) -> StandardState:
        """Progress is what the API calls so: data moved. What remains fell, or more was sent."""
        link = links.observe(state.link, sample, now, alpha=self._options.stall.ewma_alpha)
        fell = sample.remaining is not None and (
            state.remaining is None or sample.remaining < state.remaining
        )
        sent = sample.processed is not None and (
            state.processed is None or sample.processed > state.processed
        )
        memory_ms = state.memory_ms
        if memory_ms is None and (sample.iteration is not None or not self._disk_ms):
            memory_ms = now
        return msgspec.structs.replace(
            state,
            link=link,
            switch=self._switch.observe(state.switch, sample, now, link.rate),
            progress_ms=now if fell or sent else state.progress_ms,
            remaining=state.remaining if sample.remaining is None else sample.remaining,
            processed=state.processed if sample.processed is None else sample.processed,
            memory_ms=memory_ms,
        )

    def _in_post_copy(self, state: StandardState, now: int) -> Decision[StandardState]:
        quiet = links.quiet_ms(state.link, now)
        since = state.link.moved_ms or 0
        if quiet <= POST_COPY_DEAD_MS or (state.broken_ms is not None and state.broken_ms > since):
            return Decision(state=state)
        reason = f"in post-copy, and nothing was sent for {quiet // 1000} s"
        return Decision(state=state, actions=(BreakPostCopy(reason=reason),))

    def _stuck(self, state: StandardState, sample: Sample, now: int) -> tuple[StandardState, Action | None]:
        quiet = links.quiet_ms(state.link, now)
        if quiet > links.DEAD_MS:
            reason = f"the link is dead: nothing was sent for {quiet // 1000} s"
            return state, Abort(reason=reason, cause=Cause.LINK)
        still = now - state.progress_ms
        if self._progress_ms and still > self._progress_ms:
            limit_s = self._progress_ms // 1000
            reason = f"no progress for {still // 1000} s (progressTimeout {limit_s} s)"
            return state, Abort(reason=reason, cause=Cause.PROGRESS_TIMEOUT)
        overdue = self._switch.overdue(state.switch, sample, now, quiet)
        if overdue:
            cause = Cause.LINK if quiet > links.HEALTHY_MS else Cause.COMPLETION_TIMEOUT
            return state, Abort(reason=overdue, cause=cause)
        return state, None

    def _forced(self, state: StandardState, sample: Sample, now: int) -> tuple[StandardState, Action | None]:
        switch, action, failed = self._switch.step(
            state.switch,
            sample,
            now,
            healthy=links.healthy(state.link, now),
            patience_ms=max(self._extension_ms(), HOLD_MS),
        )
        state = msgspec.structs.replace(state, switch=switch)
        if failed:
            return state, Abort(reason=failed, cause=Cause.COMPLETION_TIMEOUT)
        return state, action

    def _late(self, state: StandardState, sample: Sample, now: int) -> tuple[StandardState, Action | None]:
        limit = self._limit_ms(state)
        if limit is None or now <= limit or state.switch.wanted or state.switch.stopped_ms is not None:
            return state, None
        passed = f"completion timeout of {limit // 1000} s passed"
        if not self._switch.consented:
            reason = f"not complete after {now // 1000} s: {passed}"
            return state, Abort(reason=reason, cause=Cause.COMPLETION_TIMEOUT)
        switch = self._switch.want(state.switch, passed, now)
        return self._forced(msgspec.structs.replace(state, switch=switch), sample, now)

    def _at_a_pass(
        self, state: StandardState, sample: Sample, now: int
    ) -> tuple[StandardState, Action | None, str]:
        detector, rate = self._detector, state.link.rate
        if detector is None or state.switch.stopped_ms is not None or state.switch.wanted:
            return state, None, ""
        plateau, passed = detector.observe(
            state.plateau, sample, now, rate=rate, judged=links.healthy(state.link, now)
        )
        state = msgspec.structs.replace(state, plateau=plateau)
        if not passed:
            return state, None, ""
        found = detector.finding(plateau, sample, now, rate=rate, budget_ms=self._budget_ms(state, now))
        label = "" if found.verdict is Verdict.NONE else found.verdict.value
        match found.verdict:
            case Verdict.RELAX if found.limit_ms > (sample.max_downtime_ms or 0):
                ramp = msgspec.structs.replace(state.ramp, asked=found.limit_ms)
                relax = SetMaxDowntime(ms=found.limit_ms, reason=found.reason)
                return msgspec.structs.replace(state, ramp=ramp), relax, label
            case Verdict.SWITCH:
                switch = self._switch.want(state.switch, found.reason, now)
                wanting = msgspec.structs.replace(state, switch=switch)
                forced, action = self._forced(wanting, sample, now)
                return forced, action, "postCopy" if isinstance(action, StartPostCopy) else label
            case Verdict.GIVE_UP:
                return state, Abort(reason=found.reason, cause=Cause.STALLED), label
        return state, None, ""

    def _limit_ms(self, state: StandardState) -> int | None:
        """When the completion timeout of the present phase passes; None: never."""
        if not self._memory_ms:
            return None
        if state.memory_ms is None:
            return self._disk_ms
        return (state.memory_ms if self._disk_ms else 0) + self._memory_ms

    def _extension_ms(self) -> int:
        return int(self._memory_ms * (self._options.stall.completion_factor - 1))

    def _budget_ms(self, state: StandardState, now: int) -> int | None:
        limit = self._limit_ms(state)
        return None if limit is None else limit + self._extension_ms() - now


def may_post_copy(options: Options, workload: Workload) -> bool:
    """Whether post-copy is consented to and possible at all.

    QEMU cannot save an attached VFIO device with it, so it is left out of the flags, too.
    """
    return options.allow_post_copy and not workload.vfio


def _marked(state: StandardState, action: Action) -> StandardState:
    return msgspec.structs.replace(state, aborting=True) if isinstance(action, Abort) else state
