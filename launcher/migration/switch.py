# SPDX-License-Identifier: Apache-2.0
"""How a migration is made to end, once that is wanted: post-copy, a long stop, a pause, or not at all. Pure.

The first that is consented to and not refused is asked for, a few times; each has a deadline to show an
effect, then comes the next, then the migration is given up. None is asked for while the link is not healthy.
Post-copy counts when the guest's state says so, not when the call returned.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from launcher.migration.options import QEMU_MAX_DOWNTIME_MS, Options
from launcher.migration.policy import Outcome, PauseGuest, SetMaxDowntime, StartPostCopy
from launcher.migration.sample import Sample

AGAIN_MS = 2000
TRIES = 3
STOPPED_GRACE_MS = 60_000
"""A guest that stands still to end the migration gets at least so long: the API's default of
``switchoverTimeout``."""
STOPPED_QUIET_MS = 15_000
"""A guest that stands still while nothing moves is let go sooner."""

Kind = Literal["post-copy", "stop", "pause"]
Forced = StartPostCopy | SetMaxDowntime | PauseGuest


class SwitchState(msgspec.Struct, frozen=True, kw_only=True):
    """``wanted`` is the reason, empty while nobody wants it; ``since_ms`` when it was asked with success.

    ``stopped_ms``: the guest stands still since then; ``cost_ms`` is what was left then, in time.
    """

    wanted: str = ""
    wanted_ms: int = 0
    kind: Kind | Literal[""] = ""
    asked: bool = False
    since_ms: int | None = None
    tries: int = 0
    next_ms: int = 0
    refused: tuple[str, ...] = ()
    stopped_ms: int | None = None
    cost_ms: int = 0

    @property
    def begun(self) -> bool:
        """Something was done that the ramp must not undo."""
        return self.since_ms is not None


class Switch:
    """The ladder, for one migration's consents."""

    def __init__(self, options: Options, *, post_copy: bool) -> None:
        kinds: tuple[Kind, ...] = ("post-copy", "stop", "pause") if post_copy else ("stop", "pause")
        self._kinds = kinds if options.allow_workload_disruption else ()
        self._effect_ms = max(options.stall.switchover_s, 1) * 1000

    @property
    def consented(self) -> bool:
        """Something may be done at all."""
        return bool(self._kinds)

    def want(self, state: SwitchState, reason: str, now: int) -> SwitchState:
        """Begin, unless it has begun."""
        if state.wanted:
            return state
        return msgspec.structs.replace(state, wanted=reason, wanted_ms=now)

    def observe(self, state: SwitchState, sample: Sample, now: int, rate: float) -> SwitchState:
        """Note since when the guest stands still, whoever stopped it."""
        stopped = sample.stopped_for_switchover or (
            state.kind == "pause" and state.begun and sample.domain == "paused"
        )
        if not stopped:
            return msgspec.structs.replace(state, stopped_ms=None)
        if state.stopped_ms is not None:
            return state
        cost_ms = int((sample.remaining or 0) * 1000 / rate) if rate > 0 else 0
        return msgspec.structs.replace(state, stopped_ms=now, cost_ms=cost_ms)

    def overdue(self, state: SwitchState, sample: Sample, now: int, quiet: int) -> str:
        """Why a guest that stands still must be let go; empty while it need not.

        When all was sent it is about to run on the target: that nothing flows then means nothing, and to
        abort could wake it up on both sides.
        """
        if state.stopped_ms is None:
            return ""
        stood = now - state.stopped_ms
        if sample.remaining != 0 and quiet > STOPPED_QUIET_MS and stood > STOPPED_QUIET_MS:
            return f"the guest stands still and nothing was sent for {quiet // 1000} s"
        if stood > max(STOPPED_GRACE_MS, 2 * state.cost_ms):
            return f"the guest stands still for {stood // 1000} s and the migration does not end"
        return ""

    def step(
        self, state: SwitchState, sample: Sample, now: int, *, healthy: bool, patience_ms: int
    ) -> tuple[SwitchState, Forced | None, str]:
        """The state, what to do, and why to give up (empty: go on).

        ``patience_ms`` is how long a link that is not healthy is waited for.
        """
        if not state.wanted or state.stopped_ms is not None or state.asked:
            return state, None, ""
        replace = msgspec.structs.replace
        if state.since_ms is not None:
            if now - state.since_ms <= self._effect_ms:
                return state, None, ""
            # It was accepted and nothing came of it.
            state = replace(state, refused=(*state.refused, state.kind), kind="", since_ms=None, tries=0)
        kind = next((k for k in self._kinds if k not in state.refused), None)
        if kind is None:
            return state, None, f"{state.wanted}; nothing that was tried made it end"
        if now < state.next_ms:
            return state, None, ""
        if not healthy or not sample.iteration:
            # Before the first pass libvirt refuses it, and over a dead link there is no way back.
            if now - state.wanted_ms > patience_ms:
                return state, None, f"{state.wanted}; the link is not fit for what would end it"
            return state, None, ""
        return replace(state, kind=kind, asked=True), _action(kind, state.wanted), ""

    def settle(self, state: SwitchState, outcome: Outcome, now: int) -> SwitchState:
        """Take note of an action that ``step`` asked for."""
        replace = msgspec.structs.replace
        if not state.asked:
            return state
        if outcome.ok:
            return replace(state, asked=False, since_ms=now)
        if state.tries + 1 >= TRIES:
            refused = (*state.refused, state.kind)
            return replace(state, asked=False, kind="", tries=0, refused=refused, next_ms=now + AGAIN_MS)
        return replace(state, asked=False, tries=state.tries + 1, next_ms=now + AGAIN_MS)


def _action(kind: Kind, reason: str) -> Forced:
    match kind:
        case "post-copy":
            return StartPostCopy(reason=reason)
        case "stop":
            return SetMaxDowntime(ms=QEMU_MAX_DOWNTIME_MS, reason=reason)
        case "pause":
            return PauseGuest(reason=reason)
