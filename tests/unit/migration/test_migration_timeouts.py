# SPDX-License-Identifier: Apache-2.0
"""Progress and completion timeouts and the assists before the end."""

from __future__ import annotations

import pytest

from launcher.migration.cause import Cause
from launcher.migration.compose import make_policy
from launcher.migration.options import Options, Workload
from launcher.migration.policy import (
    Abort,
    Action,
    Outcome,
    PauseGuest,
    SetMaxDowntime,
    StartPostCopy,
)
from launcher.migration.sample import Sample
from launcher.migration.timeouts import Timeouts, TimeoutState
from launcher.units import GIB, MIB

SMALL = Workload(memory_bytes=512 * MIB)
DISRUPT = Options(allow_workload_disruption=True)
POST_COPY = Options(allow_workload_disruption=True, allow_post_copy=True)


def moving(t: float, **changes: object) -> Sample:
    return Sample(t=t, iteration=4, remaining=10**9, processed=int(t * 10**6), **changes)  # type: ignore[arg-type]


def stuck(t: float) -> Sample:
    return Sample(t=t, iteration=4, remaining=10**9, processed=10**6)


def actions(
    timeouts: Timeouts, samples: list[Sample], fail: frozenset[str] = frozenset()
) -> list[tuple[float, Action]]:
    state, made = TimeoutState(), []
    for sample in samples:
        state, action = timeouts.step(state, sample)
        if action is not None:
            made.append((sample.t, action))
            error = "no" if type(action).__name__ in fail else ""
            state = timeouts.settle(state, Outcome(action=action, t=sample.t, error=error))
    return made


def seconds(last: int) -> list[Sample]:
    return [moving(float(t)) for t in range(last + 1)]


@pytest.mark.parametrize(
    ("memory", "disk", "deadline_s"),
    [(512 * MIB, 0, 150), (GIB, 0, 150), (GIB + 1, 0, 300), (8 * GIB, 0, 1200), (8 * GIB, 100 * GIB, 16200)],
)
def test_the_completion_timeout_counts_binary_gigabytes(memory: int, disk: int, deadline_s: int) -> None:
    timeouts = Timeouts(Options(), Workload(memory_bytes=memory, disk_bytes=disk))
    assert timeouts.deadline_ms == deadline_s * 1000


def test_a_migration_that_is_late_is_aborted_once() -> None:
    made = actions(Timeouts(Options(), SMALL), seconds(400))
    assert [(t, type(a)) for t, a in made] == [(151.0, Abort)]
    assert isinstance(made[0][1], Abort)
    assert made[0][1].cause is Cause.COMPLETION_TIMEOUT


@pytest.mark.parametrize(("completion_s", "progress_s", "aborts"), [(0, 0, 0), (100, 0, 1), (0, 100, 1)])
def test_zero_switches_a_timeout_off(completion_s: int, progress_s: int, aborts: int) -> None:
    options = Options(completion_timeout_per_gib_s=completion_s, progress_timeout_s=progress_s)
    made = actions(Timeouts(options, SMALL), [stuck(float(t)) for t in range(3000)])
    assert len(made) == aborts


def test_a_link_that_carries_nothing_is_given_up_after_the_progress_timeout() -> None:
    samples = [moving(float(t)) for t in range(10)] + [
        Sample(t=float(t), iteration=4, remaining=10**9, processed=9 * 10**6, bandwidth=10**8)
        for t in range(10, 400)
    ]
    made = actions(Timeouts(Options(completion_timeout_per_gib_s=0), SMALL), samples)
    assert [t for t, _ in made] == [160.0]


def test_a_plateau_that_moves_data_is_progress() -> None:
    options = Options(completion_timeout_per_gib_s=0, progress_timeout_s=10)
    assert actions(Timeouts(options, SMALL), seconds(600)) == []


def test_statistics_that_are_missing_are_no_progress() -> None:
    options = Options(progress_timeout_s=10)
    made = actions(Timeouts(options, SMALL), [Sample(t=float(t), job="none") for t in range(60)])
    assert [t for t, _ in made] == [11.0]


def test_an_abort_that_failed_is_repeated_but_not_at_once() -> None:
    made = actions(Timeouts(Options(), SMALL), seconds(165), frozenset({"Abort"}))
    assert [t for t, _ in made] == [151.0, 156.0, 161.0]


@pytest.mark.parametrize(
    ("options", "vfio", "assist"),
    [
        (POST_COPY, False, StartPostCopy),
        (DISRUPT, False, PauseGuest),
        (POST_COPY, True, SetMaxDowntime),
        (DISRUPT, True, SetMaxDowntime),
    ],
)
def test_what_is_tried_when_disruption_is_allowed(options: Options, vfio: bool, assist: type) -> None:
    made = actions(Timeouts(options, Workload(memory_bytes=GIB, vfio=vfio)), seconds(400))
    assert [(t, type(a)) for t, a in made] == [(151.0, assist), (301.0, Abort)]
    if isinstance(made[0][1], SetMaxDowntime):
        assert made[0][1].ms == 300_000


def test_the_longest_downtime_is_what_qemu_takes() -> None:
    timeouts = Timeouts(DISRUPT, Workload(memory_bytes=100 * GIB, vfio=True))
    made = actions(timeouts, [moving(0.0), moving(15001.0)])
    assert made[0][1] == SetMaxDowntime(ms=2_000_000, reason="completion timeout of 15000 s passed")


def test_post_copy_has_no_timeout_any_more() -> None:
    samples = seconds(151) + [moving(float(t), domain="paused", reason="post-copy") for t in range(152, 9000)]
    made = actions(Timeouts(POST_COPY, SMALL), samples)
    assert [type(a) for _, a in made] == [StartPostCopy]


def test_post_copy_waits_for_the_first_pass_and_a_link_that_carries_something() -> None:
    early = [Sample(t=float(t), remaining=10**9, processed=t) for t in range(155)]
    assert actions(Timeouts(POST_COPY, SMALL), early) == []
    dead = seconds(140) + [stuck(float(t)) for t in range(141, 170)]
    assert actions(Timeouts(POST_COPY, SMALL), dead) == []


def test_refused_post_copy_falls_back_to_a_pause_and_that_to_an_abort() -> None:
    fail = frozenset({"StartPostCopy", "PauseGuest"})
    made = actions(Timeouts(POST_COPY, SMALL), seconds(200), fail)
    assert [type(a).__name__ for _, a in made] == ["StartPostCopy"] * 3 + ["PauseGuest"] * 3 + ["Abort"]


def test_the_last_metres_of_a_switchover_are_not_cut_off() -> None:
    samples = seconds(149) + [moving(float(t), domain="paused", reason="migration") for t in range(150, 300)]
    assert [t for t, _ in actions(Timeouts(Options(), SMALL), samples)] == [211.0]


# The classic rules, through the composition ----------------------------------------------------------------


def classic(
    options: Options, samples: list[Sample], fail: frozenset[str] = frozenset()
) -> list[tuple[float, str]]:
    policy = make_policy("classic-legacy", options, Workload(memory_bytes=GIB))
    state, made = policy.initial(), []
    for sample in samples:
        decision = policy.step(state, sample)
        state = decision.state
        for action in decision.actions:
            made.append((sample.t, type(action).__name__))
            error = "no" if type(action).__name__ in fail else ""
            state = policy.settle(state, Outcome(action=action, t=sample.t, error=error))
    return made


def falling(last: int) -> list[Sample]:
    return [Sample(t=float(t), iteration=4, remaining=10**12 - t) for t in range(last + 1)]


def test_classic_counts_decimal_gigabytes_rounded_up() -> None:
    assert classic(Options(), falling(400)) == [(301.0, "Abort")]


def test_classic_pause_doubles_the_timeout() -> None:
    assert classic(DISRUPT, falling(700)) == [(301.0, "PauseGuest"), (601.0, "Abort")]


def test_classic_never_gives_up_while_its_assist_fails() -> None:
    made = classic(POST_COPY, falling(900), frozenset({"StartPostCopy"}))
    assert {name for _, name in made} == {"StartPostCopy"}
    assert len(made) == 600


def test_classic_takes_the_call_for_post_copy_itself() -> None:
    assert classic(POST_COPY, falling(5000)) == [(301.0, "StartPostCopy")]
