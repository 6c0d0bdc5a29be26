# SPDX-License-Identifier: Apache-2.0
"""The max_downtime ramp: start strict, relax the limit step by step while passes go on. Pure.

With the API's defaults (150 ms, 7 steps, from iteration 3, every 10 s) and a ceiling of 900 ms the limit
goes 150, 257, 364, 471, 578, 685, 792, 899, 900. A step is (ceiling - initial) / steps, rounded down, so the
last one may be short. The first bump comes with the first sample of the start iteration, if the initial
value has been in force for the cooldown by then.
"""

from __future__ import annotations

import msgspec

from launcher.migration.options import QEMU_DEFAULT_DOWNTIME_MS, RampOptions
from launcher.migration.policy import Outcome, SetMaxDowntime
from launcher.migration.sample import Sample


class RampState(msgspec.Struct, frozen=True, kw_only=True):
    """``limit_ms`` is in force since ``since_ms`` (job time), ``asked`` is on its way.

    ``limit_ms`` None: nothing was set yet. The classic ramp takes 0 for that too.
    """

    limit_ms: int | None = None
    since_ms: int | None = None
    asked: int | None = None


class Ramp:
    """What runs. A value that could not be set is asked for again with the next sample."""

    def __init__(self, options: RampOptions, ceiling_ms: int) -> None:
        self._options = options
        self._ceiling = ceiling_ms
        self._initial = max(min(options.initial_ms, ceiling_ms), 1)
        self._step = max((ceiling_ms - self._initial) // max(options.steps, 1), 1)

    def step(self, state: RampState, sample: Sample) -> tuple[RampState, SetMaxDowntime | None]:
        """The state and what to set, if anything."""
        ms, reason = self._next(state, sample)
        if ms is None:
            return state, None
        return msgspec.structs.replace(state, asked=ms), SetMaxDowntime(ms=ms, reason=reason)

    def settle(self, state: RampState, outcome: Outcome) -> RampState:
        """Take note of a set call."""
        return _settle(state, outcome)

    def _next(self, state: RampState, sample: Sample) -> tuple[int | None, str]:
        if state.limit_ms is None:
            return self._initial, "ramp: initial value"
        if not _ripe(self._options, state, sample):
            return None, ""
        # Somebody may have set more meanwhile; the ramp only ever relaxes, and from there.
        present = max(state.limit_ms, sample.max_downtime_ms or 0)
        new = min(present + self._step, self._ceiling)
        if new <= present:
            return None, ""
        return new, f"ramp: pass {sample.iteration} and not converged"


class ClassicRamp:
    """KubeVirt's ramp with its quirks, for comparison.

    It takes QEMU's default for the value in force before its first call is known to have worked, so a
    failed first call makes it jump past the initial value, or never set anything; an initial value of 0
    is set for ever.
    """

    def __init__(self, options: RampOptions, ceiling_ms: int) -> None:
        self._options = options
        self._ceiling = ceiling_ms
        self._initial = min(options.initial_ms, ceiling_ms)
        self._step = max((ceiling_ms - self._initial) // max(options.steps, 1), 1)

    def step(self, state: RampState, sample: Sample) -> tuple[RampState, SetMaxDowntime | None]:
        """The state and what to set, if anything."""
        if not state.limit_ms:
            known = msgspec.structs.replace(state, limit_ms=QEMU_DEFAULT_DOWNTIME_MS, asked=self._initial)
            return known, SetMaxDowntime(ms=self._initial, reason="ramp: initial value")
        if not _ripe(self._options, state, sample):
            return state, None
        new = min(state.limit_ms + self._step, self._ceiling)
        if new <= state.limit_ms:
            return state, None
        action = SetMaxDowntime(ms=new, reason=f"ramp: pass {sample.iteration} and not converged")
        return msgspec.structs.replace(state, asked=new), action

    def settle(self, state: RampState, outcome: Outcome) -> RampState:
        """Take note of a set call."""
        return _settle(state, outcome)


def _ripe(options: RampOptions, state: RampState, sample: Sample) -> bool:
    """The start iteration is reached and the value in force has had its time."""
    if sample.iteration is None or sample.iteration < options.start_iteration:
        return False
    cooldown_ms = max(options.cooldown_s, 1) * 1000
    return state.since_ms is None or milliseconds(sample.t) - state.since_ms >= cooldown_ms


def _settle(state: RampState, outcome: Outcome) -> RampState:
    action = outcome.action
    if not isinstance(action, SetMaxDowntime) or state.asked != action.ms:
        return state
    if not outcome.ok:
        return msgspec.structs.replace(state, asked=None)
    return RampState(limit_ms=action.ms, since_ms=milliseconds(outcome.t))


def milliseconds(seconds: float) -> int:
    """Job time in whole milliseconds: sums of 0.4 s are not exact, comparisons must be."""
    return round(seconds * 1000)
