# SPDX-License-Identifier: Apache-2.0
"""The classic stall detector: series with known decisions, as (time, remaining megabytes) of each pass."""

from __future__ import annotations

from itertools import chain, repeat

import pytest

from launcher.migration.options import Options, StallOptions
from launcher.migration.policy import Abort, Outcome, SetMaxDowntime, StartPostCopy
from launcher.migration.sample import Sample
from launcher.migration.stall import Record, StallDetector, StallState

MB = 10**6
GB = 1000 * MB
FAST = 125 * MB
DISRUPT = Options(allow_workload_disruption=True)
BOTH = Options(allow_workload_disruption=True, allow_post_copy=True)
PLATEAU = [(70 + 5 * n, 500.0) for n in range(12)]


def polls(count: int = 10, bandwidth: int = FAST, start: float = 0.0) -> list[Sample]:
    return [poll(round(start + 0.4 * n, 1), bandwidth) for n in range(1, count + 1)]


def poll(t: float, bandwidth: int | None, remaining: int = 8 * GB, **state: str) -> Sample:
    return Sample(t=t, iteration=2, remaining=remaining, bandwidth=bandwidth, **state)  # type: ignore[arg-type]


def passes(*points: tuple[float, float]) -> list[Sample]:
    return [Sample(t=t, iteration=3, remaining=int(mb * MB), boundary=True) for t, mb in points]


def decisions(
    samples: list[Sample],
    options: Options | None = None,
    *,
    acceptable_s: int = 1350,
    vfio: bool = False,
) -> tuple[list[tuple[float, str]], StallState]:
    """Everything but the first limit, as (time, what), and the last state."""
    detector = StallDetector(options or Options(), acceptable_s=acceptable_s, vfio=vfio)
    state, made = detector.initial(), []
    for sample in samples:
        decision = detector.step(state, sample)
        state = decision.state
        for action in decision.actions:
            state = detector.settle(state, Outcome(action=action, t=sample.t))
            match action:
                case SetMaxDowntime():
                    made.append((sample.t, str(action.ms)))
                case StartPostCopy():
                    made.append((sample.t, "post-copy"))
                case Abort():
                    made.append((sample.t, "abort"))
    assert made[0][1] == str(min(300, (options or Options()).max_downtime_ms))
    return made[1:], state


def test_a_migration_that_converges_never_stalls() -> None:
    halves = [(10.0 + 15 * n, 8000 / 2**n) for n in range(7)]
    made, state = decisions(polls() + passes(*halves))
    assert (made, state.stalled) == ([], False)


@pytest.mark.parametrize(
    ("options", "vfio", "what"),
    [
        (Options(), False, "abort"),
        (DISRUPT, False, "2000000"),
        (BOTH, False, "post-copy"),
        (BOTH, True, "2000000"),
        (Options(allow_post_copy=True), False, "abort"),
    ],
)
def test_a_plateau_is_left_by_what_is_allowed(options: Options, vfio: bool, what: str) -> None:
    made, state = decisions(polls() + passes(*PLATEAU), options, vfio=vfio)
    assert made == [(110.0, what)]
    assert state.switch_by_s == (170 if what == "2000000" else 1350)


def test_a_plateau_within_the_consent_gets_all_of_it() -> None:
    flat = [(70 + 5 * n, 100.0) for n in range(12)]
    assert decisions(polls() + passes(*flat))[0] == [(110.0, "900")]


def test_a_soft_switch_that_does_not_begin_ends_in_an_abort() -> None:
    flat = [(70 + 5 * n, 160.0) for n in range(10)]
    later = [poll(round(120 + 0.4 * n, 1), FAST, 160 * MB) for n in range(150)]
    assert decisions(polls() + passes(*flat) + later)[0] == [(110.0, "900"), (171.2, "abort")]


def test_the_target_is_relaxed_on_a_shrinking_schedule() -> None:
    points = [(70, 400), (75, 1000), (90, 1000), (110, 1000), (115, 500), (120, 530), (125, 560), (130, 600)]
    points += [(135 + 5 * n, 1000) for n in range(13)]
    detector = StallDetector(DISRUPT, acceptable_s=2700, vfio=False)
    state, targets = detector.initial(), {}
    for sample in polls() + passes(*((float(t), float(mb)) for t, mb in points)):
        decision = detector.step(state, sample)
        state = decision.state
        for action in decision.actions:
            state = detector.settle(state, Outcome(action=action, t=sample.t))
        targets[sample.t] = state.target // MB
    assert [targets[t] for t in (110.0, 145.0, 150.0, 170.0, 180.0, 185.0, 190.0)] == [
        400,
        400,
        500,
        530,
        560,
        600,
        1000,
    ]
    assert state.switch_by_s == 190 + 60


def test_nothing_is_done_that_would_not_fit_the_time_left() -> None:
    slow = polls(25, 1 * MB, start=4.0)
    made, state = decisions(
        polls() + slow + passes((60, 2000), (100, 2000), (105, 2000)), BOTH, acceptable_s=150
    )
    assert (made, state.stalled) == ([], True)


def test_a_dead_link_that_reports_its_old_rate_is_not_noticed() -> None:
    dead = [poll(round(60.4 + 0.4 * n, 1), FAST, 1900 * MB) for n in range(230)]
    assert decisions(polls() + passes((60, 2000)) + dead, BOTH, acceptable_s=150)[0] == [(151.2, "post-copy")]


def test_a_forced_stop_is_aborted_at_the_first_deadline() -> None:
    stopped = [
        poll(round(101.4 + 0.4 * n, 1), 20 * MB, 2 * GB, domain="paused", reason="migration")
        for n in range(130)
    ]
    samples = polls(10, 20 * MB) + passes((60, 2600), (101, 2600)) + stopped
    made = decisions(samples, DISRUPT, acceptable_s=150)[0]
    assert made == [(101.0, "2000000"), (151.0, "abort")]


def test_without_a_completion_timeout_it_never_acts() -> None:
    flat = [(70 + 5 * n, 500.0) for n in range(40)]
    assert decisions(polls() + passes(*flat), BOTH, acceptable_s=0)[0] == []


def test_a_deadline_before_any_bandwidth_is_an_abort() -> None:
    samples = [poll(round(150 + 0.4 * n, 1), None, 9 * GB) for n in range(5)]
    assert decisions(samples, DISRUPT, acceptable_s=150)[0] == [(151.2, "abort")]


def test_a_job_clock_that_steps_back_fakes_a_stall() -> None:
    back = Sample(t=30, job_ms=19000, iteration=3, remaining=3850 * MB, boundary=True)
    assert decisions(polls() + passes((20, 4000), (25, 3900)) + [back], DISRUPT)[0] == [(30, "2000000")]


def test_two_slow_passes_of_a_huge_guest_are_a_stall() -> None:
    warm = [poll(round(0.4 * n, 1), 1100 * MB, 1 << 40) for n in range(1, 6)]
    points = passes((1000, 200_000), (1182, 190_000), (1355, 186_000))
    assert decisions(warm + points, BOTH, acceptable_s=165_000)[0] == [(1355, "post-copy")]


@pytest.mark.parametrize(
    ("stall", "points", "when"),
    [
        (StallOptions(window_s=0), [(70, 1000), (70.001, 1000)], 70.001),
        (StallOptions(search_local_minima=False), [(70, 400), (90, 700), (111, 900)], 111),
        (StallOptions(), [(70, 400), (90, 700), (111, 700), (116, 600), (120, 410)], 120),
    ],
    ids=["no window", "no search", "held above the target"],
)
def test_when_it_forces_the_stop(stall: StallOptions, points: list[tuple[float, float]], when: float) -> None:
    options = Options(allow_workload_disruption=True, stall=stall)
    assert decisions(polls() + passes(*points), options)[0] == [(when, "2000000")]


def test_a_pass_before_any_bandwidth_is_lost() -> None:
    samples = passes((0.2, 8000)) + polls() + passes((60, 8000), (99, 8000), (101, 8000))
    assert decisions(samples, DISRUPT)[0] == [(101, "2000000")]


def test_a_burst_of_a_minute_aborts_a_default_migration() -> None:
    points = passes((66, 1200), (76, 1250), (86, 1230), (96, 1240), (107, 1235))
    assert decisions(polls() + points)[0] == [(107, "abort")]


def test_the_bandwidth_is_an_exponential_average() -> None:
    samples = [poll(0.4, 1000), poll(0.8, 2000), poll(1.2, 500)]
    assert decisions(samples)[1].bandwidth == pytest.approx(0.4 * 500 + 0.6 * (0.4 * 2000 + 0.6 * 1000))
    slow = Options(stall=StallOptions(ewma_alpha=0.2))
    assert decisions(samples[:2], slow)[1].bandwidth == pytest.approx(1200)


def window(seconds: int, points: list[tuple[float, float]]) -> StallState:
    options = Options(stall=StallOptions(window_s=seconds, margin_percent=100))
    return decisions(polls(1) + passes(*points), options)[1]


def test_candidates_fall_and_the_best_of_the_aged_ones_is_kept() -> None:
    points: list[tuple[float, float]] = [(1, 500), (6, 400), (11, 300), (31, 200)]
    state = window(25, points)
    assert [c.remaining // MB for c in state.candidates] == [300, 200]
    assert state.outside == Record(6000, 400 * MB)


@pytest.mark.parametrize(
    ("remaining", "margin", "stalled"), [(900, 4, False), (970, 4, True), (955, 10, True)]
)
def test_a_stall_is_a_pass_no_better_than_the_margin(remaining: int, margin: int, stalled: bool) -> None:
    options = Options(stall=StallOptions(margin_percent=margin))
    state = decisions(polls(1) + passes((1, 1000), (42, remaining)), options)[1]
    assert state.stalled is stalled


def test_a_switch_whose_call_failed_is_tried_at_the_next_pass() -> None:
    detector = StallDetector(BOTH, acceptable_s=1350, vfio=False)
    state, made = detector.initial(), []
    errors = chain(["", "refused"], repeat(""))
    for sample in polls() + passes(*PLATEAU):
        decision = detector.step(state, sample)
        state = decision.state
        for action in decision.actions:
            state = detector.settle(state, Outcome(action=action, t=sample.t, error=next(errors)))
            made.append((sample.t, type(action).__name__))
    assert made[1:] == [(110, "StartPostCopy"), (115, "StartPostCopy")]
    assert state.mode == "PostCopy"


def test_the_first_limit_is_repeated_until_it_is_set() -> None:
    detector = StallDetector(Options(), acceptable_s=1350, vfio=False)
    state, made = detector.initial(), []
    errors = chain(["no", "no"], repeat(""))
    for sample in polls():
        decision = detector.step(state, sample)
        state = decision.state
        for action in decision.actions:
            state = detector.settle(state, Outcome(action=action, t=sample.t, error=next(errors)))
            made.append(sample.t)
    assert made == [0.4, 0.8, 1.2]
