# SPDX-License-Identifier: Apache-2.0
"""Finds the plateau: passes that leave no less than the best one did, and what may be done about it. Pure.

A guest that writes faster than the link carries does not diverge: each page gets dirty once in a pass, so
what is left at the beginning of a pass settles. Only there is it known exactly; between two passes it is
noise. ``stallProgressTimeout`` without a pass better than the best by ``stallMargin`` is a stall. Then:

    what fits into maxDowntimeMs          the limit is raised to it, and QEMU takes the next pass that fits
    more, and disruption is allowed       the guest is made to switch, at one of the better passes
    more, not allowed                     the limit goes to maxDowntimeMs and the wait for a quiet moment goes
                                          on; hopeless for minutes, it is given up

A stall is taken back when the guest calms down. Nothing is judged while the link is not itself or
auto-converge still slows the guest down.
"""

from __future__ import annotations

import math
from enum import StrEnum

import msgspec

from launcher.migration.options import Options
from launcher.migration.sample import Sample

SLOW_MS = 10_000
"""So long without a better pass and the limit goes to what is needed, if that is consented to."""
SLOW_PASSES = 2
STALL_PASSES = 3
"""Not only time but passes must have gone by: those of a huge guest take longer than the window."""
HEADROOM = 1.1
"""Two passes of a plateau are never quite the same."""
SAME_PASS_MS = 100
"""Two events so close are one pass: auto-converge and the end of a migration count dirty pages twice."""
STOP_PATIENCE = 15
"""How many times the pause to be caused is waited for a better moment. Waiting about what acting costs is
never much worse than knowing the future; a pause counts for more than its length."""
POST_COPY_PATIENCE = 1.5
PATIENCE_WINDOWS = 3
"""The wait is never longer than so many windows."""
HOPELESS = 4
HOPELESS_MS = 180_000
"""So many times the consented downtime for so long, without a trend, will not come right by itself."""
CALMER = 0.9
CALMER_PASSES = 2
"""So much less than the plateau in so many passes in a row: it is no plateau any more."""
LEAST_PATIENCE_MS = 1000


class Record(msgspec.Struct, frozen=True, array_like=True):
    """What was left when a pass began, at a time of the job."""

    ms: int
    remaining: int


class Verdict(StrEnum):
    """What the detector wants at a pass."""

    NONE = "none"
    RELAX = "softStopAndCopy"
    """Raise the limit to ``limit_ms``; nobody is hurt beyond consent."""
    SWITCH = "hardStopAndCopy"
    """Go beyond: post-copy or a long stop."""
    GIVE_UP = "abort"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict with its reason."""

    verdict: Verdict = Verdict.NONE
    limit_ms: int = 0
    reason: str = ""


class PlateauState(msgspec.Struct, frozen=True, kw_only=True):
    """``best`` is the pass to beat, ``passes`` how many did not; ``least`` the smallest since then.

    ``target`` is what a pass must come near once stalled; it is relaxed to the next of ``history`` at
    ``relax_ms``. ``armed_ms``: since then the limit is at its maximum.
    """

    best: Record | None = None
    last: Record | None = None
    passes: int = 0
    least: int = 0
    stalled_ms: int | None = None
    target: int = 0
    history: tuple[int, ...] = ()
    patience_ms: int = 0
    relax_ms: int = 0
    calm_passes: int = 0
    hopeless_ms: int | None = None
    throttle: int = 0
    armed_ms: int | None = None


class Plateau:
    """The detector. ``observe`` every pass, then ask for the ``finding``."""

    def __init__(self, options: Options, *, post_copy: bool) -> None:
        self._options = options.stall
        self._consented_ms = options.max_downtime_ms
        self._disruption = options.allow_workload_disruption
        self._post_copy = post_copy
        self._switchover_bps = options.switchover_bps
        self._window_ms = self._options.window_s * 1000
        self._margin = self._options.margin_percent / 100

    def observe(
        self, state: PlateauState, sample: Sample, now: int, *, rate: float, judged: bool
    ) -> tuple[PlateauState, bool]:
        """Take note of a sample; True: a pass began that counts. ``judged``: the link is as it should be."""
        replace = msgspec.structs.replace
        if (sample.throttle or 0) > state.throttle:
            # The guest is being slowed down: what was seen before means nothing any more.
            kept = PlateauState(throttle=sample.throttle or 0, last=state.last, armed_ms=state.armed_ms)
            return kept, False
        if not sample.boundary or sample.remaining is None or rate <= 0:
            return state, False
        record = Record(now, sample.remaining)
        if state.last is not None and now - state.last.ms < SAME_PASS_MS:
            return replace(state, last=record), False
        state = replace(state, last=record)
        if not judged:
            best = None if state.best is None else Record(now, state.best.remaining)
            return replace(state, best=best, hopeless_ms=None), False
        if state.stalled_ms is not None:
            return self._stalled(state, record, rate), True
        return self._watch(state, record, rate), True

    def finding(
        self, state: PlateauState, sample: Sample, now: int, *, rate: float, budget_ms: int | None
    ) -> Finding:
        """What to do at the pass that was just observed; ``budget_ms`` is left to end in (None: no limit)."""
        best, left = state.best, sample.remaining or 0
        if best is None:
            return Finding()
        if state.stalled_ms is None:
            slow = state.passes >= SLOW_PASSES and now - best.ms >= SLOW_MS
            if slow and self.need_ms(state.least, rate) <= self._consented_ms:
                return self._relax(state.least, sample, rate, "passes get no better, and what is left fits")
            return Finding()
        spent_s = (now - best.ms) // 1000
        need_ms = self.need_ms(state.target, rate)
        armed = state.armed_ms is not None and now - state.armed_ms > self._options.switchover_s * 1000
        if need_ms <= self._consented_ms and not (armed and self._disruption):
            return self._relax(state.target, sample, rate, f"no better pass for {spent_s} s, and it fits")
        why = f"no better pass for {spent_s} s; the rest takes {self.need_ms(left, rate)} ms"
        if self._disruption:
            return self._beyond(state, left, now, rate=rate, budget_ms=budget_ms, why=why)
        hopeless = state.hopeless_ms is not None and now - state.hopeless_ms >= HOPELESS_MS
        if hopeless:
            return Finding(verdict=Verdict.GIVE_UP, reason=f"{why}, {self._consented_ms} ms are allowed")
        return Finding(verdict=Verdict.RELAX, limit_ms=self._consented_ms, reason=why)

    def armed(self, state: PlateauState, limit_ms: int, now: int) -> PlateauState:
        """A limit was set."""
        if state.armed_ms is not None or limit_ms < self._consented_ms:
            return state
        return msgspec.structs.replace(state, armed_ms=now)

    def need_ms(self, remaining: int, rate: float) -> int:
        """How long the guest would stand still for ``remaining`` bytes.

        QEMU lifts the migration's own cap for that, so where the link is known it counts, not the rate.
        """
        return math.ceil(remaining * 1000 / max(rate, self._switchover_bps, 1.0))

    def _relax(self, remaining: int, sample: Sample, rate: float, reason: str) -> Finding:
        # QEMU compares with the rate it measures, which is the capped one.
        measured = min(rate, sample.bandwidth or rate)
        wanted = math.ceil(remaining * 1000 / max(measured, 1.0) * HEADROOM)
        ceiling = self._consented_ms
        if self._switchover_bps > measured:
            ceiling = math.floor(self._consented_ms * self._switchover_bps / max(measured, 1.0))
        return Finding(verdict=Verdict.RELAX, limit_ms=max(min(wanted, ceiling), 1), reason=reason)

    def _beyond(
        self, state: PlateauState, left: int, now: int, *, rate: float, budget_ms: int | None, why: str
    ) -> Finding:
        assert state.best is not None, "there is a stall"
        if self._options.search_local_minima and left > state.target * (1 + self._margin):
            return Finding()
        cost_ms = left * 1000 / max(rate, 1.0)
        patience = POST_COPY_PATIENCE if self._post_copy else STOP_PATIENCE
        if now - state.best.ms < min(patience * cost_ms, PATIENCE_WINDOWS * self._window_ms):
            return Finding()
        if budget_ms is not None and cost_ms > budget_ms:
            return Finding()
        return Finding(verdict=Verdict.SWITCH, reason=why)

    def _watch(self, state: PlateauState, record: Record, rate: float) -> PlateauState:
        replace = msgspec.structs.replace
        best = state.best
        if best is None or record.remaining < best.remaining * (1 - self._margin):
            return replace(state, best=record, passes=0, least=record.remaining, hopeless_ms=None)
        state = replace(state, passes=state.passes + 1, least=min(state.least, record.remaining))
        state = self._despair(state, record, rate)
        if state.passes < STALL_PASSES or record.ms - best.ms < self._window_ms:
            return state
        return replace(
            state,
            stalled_ms=record.ms,
            target=state.least,
            history=(record.remaining,),
            patience_ms=self._window_ms,
            relax_ms=record.ms + self._window_ms,
        )

    def _stalled(self, state: PlateauState, record: Record, rate: float) -> PlateauState:
        replace = msgspec.structs.replace
        assert state.best is not None, "there is a stall"
        calm = state.calm_passes + 1 if record.remaining < state.best.remaining * CALMER else 0
        if calm >= CALMER_PASSES:
            return PlateauState(
                best=record,
                last=record,
                least=record.remaining,
                throttle=state.throttle,
                armed_ms=state.armed_ms,
            )
        history = tuple(sorted((*state.history, record.remaining)))[:HISTORY]
        state = self._despair(replace(state, calm_passes=calm, history=history), record, rate)
        if record.remaining < state.target:
            return replace(state, target=record.remaining)
        if record.ms < state.relax_ms:
            return state
        larger = [left for left in state.history if left > state.target]
        patience = max(int(state.patience_ms * self._options.patience_decay), LEAST_PATIENCE_MS)
        return replace(
            state,
            target=larger[0] if larger else state.target,
            patience_ms=patience,
            relax_ms=record.ms + patience,
        )

    def _despair(self, state: PlateauState, record: Record, rate: float) -> PlateauState:
        if self.need_ms(record.remaining, rate) <= HOPELESS * self._consented_ms:
            return msgspec.structs.replace(state, hopeless_ms=None)
        since = record.ms if state.hopeless_ms is None else state.hopeless_ms
        return msgspec.structs.replace(state, hopeless_ms=since)


HISTORY = 500
"""Passes that are remembered for relaxing the target: the smallest."""
