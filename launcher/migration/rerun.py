# SPDX-License-Identifier: Apache-2.0
"""Shows a recording of ours to rules again and tells what they decide. Pure: records in, lines out.

With the rules that made it the recording is repeated exactly: each action goes as it went, also wrong. With
others it is only a series of samples: every action is taken to work, and that the guest would have been
copied differently from there on is not known.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import msgspec

from launcher.errors import InvalidRequest, Violation
from launcher.migration.compose import make_policy
from launcher.migration.policy import Decision, Outcome, Policy, SetMaxDowntime
from launcher.migration.recording import Decided, Looked, Recording, Resumed
from launcher.migration.replay import ReplayLine, replay_line


def rerun(recording: Recording, *, rules: str = "") -> tuple[ReplayLine, ...]:
    """The steps at which ``rules`` act; without a name those that the recording was made with.

    ``step`` counts the recorded samples.

    Raises:
        InvalidRequest: no rules decided, and others have nothing to decide there.
        Bug: there are no rules of that name.
    """
    header = recording.header
    if not header.rules:
        message = "volumes were moved on their own node, where no rules decide: there is nothing to replay"
        raise InvalidRequest(
            [Violation(field="header.rules", type="FieldValueNotSupported", message=message)]
        )
    name = rules or header.rules
    policy = make_policy(name, header.options, header.workload)
    run = _Again(policy) if name == header.rules else _Anew(policy)
    lines = []
    entries = recording.entries
    for place, entry in enumerate(entries):
        if isinstance(entry, Resumed):
            run.resumed(entry)
        elif isinstance(entry, Looked):
            answer = entries[place + 1] if place + 1 < len(entries) else None
            line = run.looked(entry, answer if isinstance(answer, Decided) else None)
            lines += [] if line is None else [line]
    return tuple(lines)


def recorded(recording: Recording) -> tuple[ReplayLine, ...]:
    """What was decided when the recording was made, in the same form."""
    lines: list[ReplayLine] = []
    step, now_ms = -1, 0
    for entry in recording.entries:
        if isinstance(entry, Looked):
            step, now_ms = step + 1, round(entry.sample.t * 1000)
        elif isinstance(entry, Decided) and entry.outcomes:
            actions = tuple(outcome.action for outcome in entry.outcomes)
            decision = Decision[None](state=None, actions=actions, label=entry.label)
            lines.append(replay_line(step, now_ms, decision))
    return tuple(lines)


def classic_rules(recording: Recording) -> str:
    """Which of KubeVirt's two modes the recording's options ask for."""
    return "classic-stall" if recording.header.options.stall_asked else "classic-legacy"


class _Again:
    """The same rules: outcomes are those that were recorded."""

    def __init__(self, policy: Policy[Any]) -> None:
        self._policy = policy
        self._state: Any = policy.initial()
        self._step = -1

    def resumed(self, entry: Resumed) -> None:
        """Go on from what was written down, as the next process did."""
        try:
            self._state = self._policy.decode(entry.state) if entry.state else self._policy.initial()
        except msgspec.DecodeError:
            self._state = self._policy.initial()

    def looked(self, entry: Looked, answer: Decided | None) -> ReplayLine | None:
        self._step += 1
        decision = self._policy.step(self._state, entry.sample)
        self._state = decision.state
        outcomes = deque(answer.outcomes if answer is not None else ())
        for action in decision.actions:
            went = outcomes.popleft() if outcomes else None
            if went is None or went.action != action:
                went = Outcome(action=action, t=entry.sample.t)
            self._state = self._policy.settle(self._state, went)
        if not decision.actions:
            return None
        return replay_line(self._step, round(entry.sample.t * 1000), decision)


class _Anew(_Again):
    """Other rules: their own limit is shown to them, and nothing fails."""

    def __init__(self, policy: Policy[Any]) -> None:
        super().__init__(policy)
        self._limit: int | None = None

    def resumed(self, entry: Resumed) -> None:
        """These rules were not interrupted."""

    def looked(self, entry: Looked, answer: Decided | None) -> ReplayLine | None:
        sample = msgspec.structs.replace(entry.sample, max_downtime_ms=self._limit)
        self._step += 1
        decision = self._policy.step(self._state, sample)
        self._state = decision.state
        for action in decision.actions:
            self._state = self._policy.settle(self._state, Outcome(action=action, t=sample.t))
            self._limit = action.ms if isinstance(action, SetMaxDowntime) else self._limit
        if not decision.actions:
            return None
        return replay_line(self._step, round(sample.t * 1000), decision)
