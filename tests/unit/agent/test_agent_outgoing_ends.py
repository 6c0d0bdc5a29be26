# SPDX-License-Identifier: Apache-2.0
"""When nobody needs a migration away any more."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from launcher.agent.outgoing_ends import over
from launcher.migration.attempt import AttemptRecord, Outgoing, Phase, begin
from launcher.migration.options import Options, Workload


@pytest.fixture
def attempt() -> AttemptRecord:
    return begin(
        Outgoing(
            attempt="uid-move",
            namespace="lab",
            name="move",
            uuid="uuid",
            source_node="a",
            target_node="b",
            options=Options(),
            workload=Workload(memory_bytes=1),
        )
    )


@pytest.mark.parametrize("phase", [phase for phase in Phase if not phase.final])
def test_what_has_not_ended_is_not_over(attempt: AttemptRecord, phase: Phase) -> None:
    assert not over(replace(attempt, phase=phase), frozenset())


@pytest.mark.parametrize("confirmed", [False, True])
def test_what_succeeded_is_over_when_the_target_confirmed_it(attempt: AttemptRecord, confirmed: bool) -> None:
    assert over(replace(attempt, phase=Phase.SUCCEEDED, confirmed=confirmed), frozenset()) == confirmed


@pytest.mark.parametrize(
    ("held", "untold", "is_over"),
    [
        (frozenset({"", "uid-other"}), False, True),
        (frozenset({"", "uid-move"}), False, False),
        (frozenset({""}), True, False),
    ],
)
def test_what_failed_is_over_when_its_instance_and_the_target_know(
    attempt: AttemptRecord, held: frozenset[str], untold: bool, is_over: bool
) -> None:
    assert over(replace(attempt, phase=Phase.FAILED, untold=untold), held) == is_over
