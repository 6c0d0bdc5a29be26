# SPDX-License-Identifier: Apache-2.0
"""The policies that can be chosen, by name, each put together from its rules. Pure.

``standard`` runs: ramp and stall detector. ``ramp`` and ``detector`` have one of the two, ``fixed`` neither;
without a ramp maxDowntimeMs is allowed from the start. ``classic-legacy`` and ``classic-stall`` repeat
KubeVirt's two modes with their faults, to compare with.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from launcher.errors import Bug
from launcher.migration.classic_timeouts import ClassicTimeouts, ClassicTimeoutState
from launcher.migration.options import Options, RampOptions, Workload
from launcher.migration.plateau import Plateau
from launcher.migration.policy import Action, Decision, Outcome, Policy
from launcher.migration.ramp import ClassicRamp, Ramp, RampState
from launcher.migration.sample import Sample
from launcher.migration.stall import StallDetector
from launcher.migration.standard import Standard, may_post_copy


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


def _composed(name: str, *, ramp: bool, detector: bool) -> Callable[[Options, Workload], Policy[Any]]:
    def make(options: Options, workload: Workload) -> Policy[Any]:
        ceiling = options.max_downtime_ms
        plateau = Plateau(options, post_copy=may_post_copy(options, workload)) if detector else None
        return Standard(
            name,
            options,
            workload,
            ramp=Ramp(options.ramp if ramp else RampOptions(initial_ms=ceiling), ceiling),
            detector=plateau,
        )

    return make


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
    "standard": _composed("standard", ramp=True, detector=True),
    "ramp": _composed("ramp", ramp=True, detector=False),
    "detector": _composed("detector", ramp=False, detector=True),
    "fixed": _composed("fixed", ramp=False, detector=False),
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
