# SPDX-License-Identifier: Apache-2.0
"""Deadlines, the watch over the link, and the ways to force an end, without and with a detector."""

from __future__ import annotations

import pytest

from launcher.migration.cause import Cause
from launcher.migration.compose import make_policy
from launcher.migration.options import Options, Workload
from launcher.migration.policy import (
    Abort,
    Action,
    BreakPostCopy,
    Outcome,
    SetMaxDowntime,
)
from launcher.migration.ramp import Ramp
from launcher.migration.sample import Sample
from launcher.migration.standard import Standard
from launcher.units import GIB, MIB

SMALL = Workload(memory_bytes=512 * MIB)
DISRUPT = Options(allow_workload_disruption=True)
POST_COPY = Options(allow_workload_disruption=True, allow_post_copy=True)
STOP = 2_000_000


def moving(t: float, **changes: object) -> Sample:
    fields = {"iteration": 4, "remaining": 10**9, "processed": int((t + 1) * 10**6), **changes}
    return Sample(t=t, **fields)  # type: ignore[arg-type]


def stuck(t: float, **changes: object) -> Sample:
    return moving(t, **{"processed": 10**6, **changes})


def rules(options: Options, workload: Workload = SMALL) -> Standard:
    """Without ramp and detector: the limit is set once, at the beginning."""
    policy = make_policy("fixed", options, workload)
    assert isinstance(policy, Standard)
    return policy


def actions(
    policy: Standard, samples: list[Sample], fail: frozenset[str] = frozenset()
) -> list[tuple[float, Action]]:
    state, made = policy.initial(), []
    for sample in samples:
        decision = policy.step(state, sample)
        state = decision.state
        for action in decision.actions:
            made.append((sample.t, action))
            error = "no" if type(action).__name__ in fail and sample.t else ""
            state = policy.settle(state, Outcome(action=action, t=sample.t, error=error))
    assert made[0] == (samples[0].t, SetMaxDowntime(ms=900, reason="ramp: initial value"))
    return made[1:]


def seconds(last: int, first: int = 0) -> list[Sample]:
    return [moving(float(t)) for t in range(first, last + 1)]


def names(made: list[tuple[float, Action]]) -> list[tuple[float, str]]:
    return [(t, type(action).__name__) for t, action in made]


@pytest.mark.parametrize(
    ("memory", "disk", "deadline_s"),
    [(512 * MIB, 0, 150), (GIB, 0, 150), (GIB + 1, 0, 300), (8 * GIB, 0, 1200), (8 * GIB, 100 * GIB, 16200)],
)
def test_the_completion_timeout_counts_binary_gigabytes(memory: int, disk: int, deadline_s: int) -> None:
    policy = rules(Options(), Workload(memory_bytes=memory, disk_bytes=disk))
    assert policy.deadline_ms == deadline_s * 1000


def test_a_migration_that_is_late_is_aborted_once() -> None:
    made = actions(rules(Options()), seconds(400))
    assert names(made) == [(151.0, "Abort")]
    assert isinstance(made[0][1], Abort)
    assert made[0][1].cause is Cause.COMPLETION_TIMEOUT


def test_disks_have_a_clock_of_their_own() -> None:
    workload = Workload(memory_bytes=GIB, disk_bytes=2 * GIB)
    copying = [moving(float(t), iteration=None) for t in range(290)]
    made = actions(rules(Options(), workload), copying + seconds(500, first=290))
    assert names(made) == [(441.0, "Abort")], "150 s from where memory began to flow"
    slow = [moving(float(t), iteration=None) for t in range(400)]
    assert names(actions(rules(Options(), workload), slow)) == [(301.0, "Abort")]


@pytest.mark.parametrize(("completion_s", "progress_s", "aborts"), [(0, 0, 0), (100, 0, 1), (0, 100, 1)])
def test_zero_switches_a_timeout_off(completion_s: int, progress_s: int, aborts: int) -> None:
    options = Options(completion_timeout_per_gib_s=completion_s, progress_timeout_s=progress_s)
    silent = [Sample(t=float(t), iteration=4, remaining=10**9) for t in range(3000)]
    assert len(actions(rules(options), silent)) == aborts


def test_a_link_that_carries_nothing_is_given_up_whatever_rate_is_reported() -> None:
    samples = seconds(9) + [moving(float(t), processed=10**7, bandwidth=10**8) for t in range(10, 400)]
    made = actions(rules(Options(completion_timeout_per_gib_s=0, progress_timeout_s=0)), samples)
    assert names(made) == [(85.0, "Abort")]
    assert isinstance(made[0][1], Abort)
    assert made[0][1].cause is Cause.LINK


def test_a_plateau_that_moves_data_is_progress() -> None:
    options = Options(completion_timeout_per_gib_s=0, progress_timeout_s=10)
    assert actions(rules(options), seconds(600)) == []


def test_statistics_that_are_missing_are_no_progress() -> None:
    options = Options(progress_timeout_s=10)
    made = actions(rules(options), [Sample(t=float(t), job="none") for t in range(60)])
    assert [t for t, _ in made] == [11.0]


def test_an_abort_that_failed_is_repeated_but_not_at_once() -> None:
    made = actions(rules(Options()), seconds(165), frozenset({"Abort"}))
    assert [t for t, _ in made] == [151.0, 156.0, 161.0]


@pytest.mark.parametrize(
    ("options", "vfio", "first"),
    [
        (POST_COPY, False, "StartPostCopy"),
        (DISRUPT, False, "SetMaxDowntime"),
        (POST_COPY, True, "SetMaxDowntime"),
        (DISRUPT, True, "SetMaxDowntime"),
    ],
)
def test_what_is_tried_when_disruption_is_allowed(options: Options, vfio: bool, first: str) -> None:
    made = actions(rules(options, Workload(memory_bytes=GIB, vfio=vfio)), seconds(400))
    assert names(made)[0] == (151.0, first)
    if isinstance(made[0][1], SetMaxDowntime):
        assert made[0][1].ms == STOP


def test_what_shows_no_effect_is_followed_by_the_next_and_the_abort() -> None:
    made = actions(rules(POST_COPY), seconds(600))
    assert names(made) == [
        (151.0, "StartPostCopy"),
        (212.0, "SetMaxDowntime"),
        (273.0, "PauseGuest"),
        (334.0, "Abort"),
    ]


def test_what_is_refused_is_tried_three_times() -> None:
    fail = frozenset({"StartPostCopy", "SetMaxDowntime", "PauseGuest"})
    made = actions(rules(POST_COPY), seconds(200), fail)
    tries = ["StartPostCopy"] * 3 + ["SetMaxDowntime"] * 3 + ["PauseGuest"] * 3
    assert [type(a).__name__ for _, a in made] == [*tries, "Abort"]


def test_post_copy_has_no_timeout_any_more() -> None:
    running = [moving(float(t), domain="paused", reason="post-copy") for t in range(152, 3000)]
    assert names(actions(rules(POST_COPY), seconds(151) + running)) == [(151.0, "StartPostCopy")]


def test_post_copy_over_a_dead_link_is_interrupted_once_for_each_time_it_dies() -> None:
    def over(t: float, *, sent: int) -> Sample:
        return moving(t, domain="paused", reason="post-copy", processed=sent)

    samples = seconds(151) + [over(float(t), sent=10**9) for t in range(152, 300)]
    samples += [over(float(t), sent=2 * 10**9) for t in range(300, 400)]
    made = actions(rules(POST_COPY), samples)
    assert [t for t, action in made if isinstance(action, BreakPostCopy)] == [183.0, 331.0]
    assert len(made) == 3


def test_nothing_that_cannot_be_undone_before_the_first_pass_or_on_a_dead_link() -> None:
    early = [moving(float(t), iteration=None) for t in range(200)]
    assert actions(rules(POST_COPY), early) == []
    dead = seconds(140) + [stuck(float(t), processed=141 * 10**6) for t in range(141, 215)]
    assert actions(rules(POST_COPY), dead) == []
    back = dead + [moving(float(t)) for t in range(215, 240)]
    assert names(actions(rules(POST_COPY), back)) == [(215.0, "StartPostCopy")]


def test_a_link_that_became_slow_is_not_trusted() -> None:
    def sent(t: int) -> int:
        return t * 10**7 if t < 100 else 10**9 + (t - 100) * 10**6

    samples = [moving(float(t), processed=sent(t)) for t in range(1, 160)]
    assert actions(rules(POST_COPY), samples) == []


def test_a_guest_that_stands_still_is_let_go() -> None:
    def stopped(t: int, **changes: object) -> Sample:
        fields = {"remaining": 0, **changes}
        return moving(float(t), domain="paused", reason="migration", **fields)

    made = actions(rules(Options()), seconds(149) + [stopped(t) for t in range(150, 300)])
    assert names(made) == [(211.0, "Abort")]
    silent = [stopped(t, processed=150 * 10**6, remaining=10**6) for t in range(50, 300)]
    made = actions(rules(DISRUPT), [*seconds(49), moving(49.0, processed=150 * 10**6), *silent])
    assert names(made) == [(66.0, "Abort")]
    sent = [stopped(t, processed=150 * 10**6) for t in range(50, 300)]
    late = actions(rules(DISRUPT), [*seconds(49), moving(49.0, processed=150 * 10**6), *sent])
    assert names(late) == [(111.0, "Abort")], "with nothing left to send it may be about to run over there"
    assert isinstance(made[0][1], Abort)
    assert made[0][1].cause is Cause.LINK


def test_the_ramp_goes_on_from_what_the_detector_set() -> None:
    options = Options()
    ramp = Ramp(options.ramp, 900)
    state, first = ramp.step(make_policy("ramp", options, SMALL).initial().ramp, Sample(t=0.0, job="none"))
    assert first is not None
    state = ramp.settle(state, Outcome(action=first, t=0.0))
    _, bump = ramp.step(state, moving(10.0, max_downtime_ms=600))
    assert bump is not None
    assert bump.ms == 707


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
