# SPDX-License-Identifier: Apache-2.0
"""The policies that can be chosen, by name, each put together from its rules. Pure.

``standard`` runs: ramp and timeouts. ``fixed`` allows maxDowntimeMs from the start instead of a ramp.
``classic-legacy`` and ``classic-stall`` repeat KubeVirt's two modes with their faults, to compare with.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from launcher.errors import Bug
from launcher.migration.classic_timeouts import ClassicTimeouts, ClassicTimeoutState
from launcher.migration.options import Options, RampOptions, Workload
from launcher.migration.policy import Action, Decision, Outcome, Policy
from launcher.migration.ramp import ClassicRamp, Ramp, RampState
from launcher.migration.sample import Sample
from launcher.migration.stall import StallDetector
from launcher.migration.timeouts import Timeouts, TimeoutState


class StandardState(msgspec.Struct, frozen=True, kw_only=True):
    """The states of both rules."""

    ramp: RampState = RampState()
    timeouts: TimeoutState = TimeoutState()


class Standard:
    """Ramp and timeouts together; the ramp rests once the migration is being ended one way or another."""

    def __init__(self, name: str, ramp: Ramp, timeouts: Timeouts) -> None:
        self.name = name
        self._ramp = ramp
        self._timeouts = timeouts

    def initial(self) -> StandardState:
        """See ``Policy``."""
        return StandardState()

    def step(self, state: StandardState, sample: Sample) -> Decision[StandardState]:
        """See ``Policy``."""
        timeouts, verdict = self._timeouts.step(state.timeouts, sample)
        actions: list[Action] = [] if verdict is None else [verdict]
        ramp = state.ramp
        if not actions and not sample.post_copy and not timeouts.aborting and not timeouts.assisted:
            ramp, bump = self._ramp.step(ramp, sample)
            if bump is not None:
                actions.append(bump)
        return Decision(state=StandardState(ramp=ramp, timeouts=timeouts), actions=tuple(actions))

    def settle(self, state: StandardState, outcome: Outcome) -> StandardState:
        """See ``Policy``."""
        return StandardState(
            ramp=self._ramp.settle(state.ramp, outcome),
            timeouts=self._timeouts.settle(state.timeouts, outcome),
        )

    def encode(self, state: StandardState) -> str:
        """See ``Policy``."""
        return msgspec.json.encode(state).decode()

    def decode(self, text: str) -> StandardState:
        """See ``Policy``."""
        return msgspec.json.decode(text, type=StandardState)


class ClassicState(msgspec.Struct, frozen=True, kw_only=True):
    """The states of both classic rules."""

    ramp: RampState
    timeouts: ClassicTimeoutState


class ClassicLegacy:
    """KubeVirt without the stall detector: the ramp if the policy asks for one, and the timeouts after it."""

    name = "classic-legacy"

    def __init__(self, ramp: ClassicRamp | None, timeouts: ClassicTimeouts) -> None:
        self._ramp = ramp
        self._timeouts = timeouts

    def initial(self) -> ClassicState:
        """See ``Policy``."""
        return ClassicState(ramp=RampState(), timeouts=self._timeouts.initial())

    def step(self, state: ClassicState, sample: Sample) -> Decision[ClassicState]:
        """See ``Policy``."""
        actions: list[Action] = []
        ramp = state.ramp
        if self._ramp is not None:
            ramp, bump = self._ramp.step(ramp, sample)
            actions += [] if bump is None else [bump]
        timeouts, verdict = self._timeouts.step(state.timeouts, sample)
        actions += [] if verdict is None else [verdict]
        return Decision(state=ClassicState(ramp=ramp, timeouts=timeouts), actions=tuple(actions))

    def settle(self, state: ClassicState, outcome: Outcome) -> ClassicState:
        """See ``Policy``."""
        ramp = state.ramp if self._ramp is None else self._ramp.settle(state.ramp, outcome)
        return ClassicState(ramp=ramp, timeouts=self._timeouts.settle(state.timeouts, outcome))

    def encode(self, state: ClassicState) -> str:
        """See ``Policy``."""
        return msgspec.json.encode(state).decode()

    def decode(self, text: str) -> ClassicState:
        """See ``Policy``."""
        return msgspec.json.decode(text, type=ClassicState)


def _standard(options: Options, workload: Workload) -> Policy[Any]:
    return Standard("standard", Ramp(options.ramp, options.max_downtime_ms), Timeouts(options, workload))


def _fixed(options: Options, workload: Workload) -> Policy[Any]:
    at_once = RampOptions(initial_ms=options.max_downtime_ms)
    return Standard("fixed", Ramp(at_once, options.max_downtime_ms), Timeouts(options, workload))


def _classic_legacy(options: Options, workload: Workload) -> Policy[Any]:
    return classic_legacy(options, workload, acceptable_s=classic_acceptable_s(options, workload))


def _classic_stall(options: Options, workload: Workload) -> Policy[Any]:
    acceptable_s = classic_acceptable_s(options, workload)
    return StallDetector(options, acceptable_s=acceptable_s, vfio=workload.vfio)


def classic_legacy(options: Options, workload: Workload, *, acceptable_s: int) -> ClassicLegacy:
    """The classic mode with a completion timeout of its own."""
    ramp = ClassicRamp(options.ramp, options.max_downtime_ms) if options.ramp_asked else None
    return ClassicLegacy(ramp, ClassicTimeouts(options, acceptable_s=acceptable_s, vfio=workload.vfio))


def classic_acceptable_s(options: Options, workload: Workload) -> int:
    """KubeVirt's completion timeout: per decimal gigabyte, in spite of the option's name."""
    return options.completion_timeout_per_gib_s * workload.classic_gb


POLICIES: dict[str, Callable[[Options, Workload], Policy[Any]]] = {
    "standard": _standard,
    "fixed": _fixed,
    "classic-legacy": _classic_legacy,
    "classic-stall": _classic_stall,
}
"""What ``Outgoing.policy`` may name. A new policy is a new entry; nothing else knows them."""


def make_policy(name: str, options: Options, workload: Workload) -> Policy[Any]:
    """The policy ``name`` for one migration.

    Raises:
        Bug: there is none of that name; names are checked where they are configured.
    """
    if name not in POLICIES:
        raise Bug(f"no migration policy {name!r}; there are {', '.join(POLICIES)}")
    return POLICIES[name](options, workload)
