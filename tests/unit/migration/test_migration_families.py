# SPDX-License-Identifier: Apache-2.0
"""What must hold by default over families of guests and links, and the detector pass by pass."""

from __future__ import annotations

import pytest
from migration_families import CONSENTS, FAMILIES, Run, converges, play, scenarios

from launcher.migration.options import Options
from launcher.migration.plateau import Plateau, PlateauState, Verdict
from launcher.migration.sample import Sample

QUICK = tuple(name for name in FAMILIES if name not in ("huge", "storage", "database"))
RATE = 100 * 10**6
M = 900


@pytest.fixture(scope="module", params=list(CONSENTS))
def runs(request: pytest.FixtureRequest) -> list[Run]:
    drawn = scenarios(1, QUICK)
    return play("standard", request.param, drawn, [converges(scenario) for _, scenario in drawn])


def test_every_family_comes_to_an_end(runs: list[Run]) -> None:
    assert [r.family for r in runs if r.result.outcome == "running"] == []


def test_nothing_that_would_have_ended_by_itself_is_given_up(runs: list[Run]) -> None:
    assert [r.family for r in runs if r.wrong] == []


def test_no_step_that_cannot_be_taken_back_over_a_dead_link(runs: list[Run]) -> None:
    assert [r.family for r in runs if r.blind] == []


def test_without_consent_nobody_stands_still_for_longer_than_allowed(runs: list[Run]) -> None:
    for run in runs:
        consent = run.options.allow_workload_disruption
        hidden_ms = run.scenario.hidden_bytes * 1000 / run.scenario.link_bps
        if run.result.downtime_ms is not None and not consent:
            assert run.result.downtime_ms <= M + hidden_ms + 100, run.family


def test_with_consent_only_a_link_that_stays_dead_ends_in_an_abort(runs: list[Run]) -> None:
    if runs[0].options.allow_workload_disruption:
        given_up = [r for r in runs if r.aborted]
        assert all(r.scenario.link(r.result.t) == 0 for r in given_up)


# Pass by pass ----------------------------------------------------------------------------------------------


class Passes:
    """Feeds passes to a detector and keeps what it found at each."""

    def __init__(self, options: Options, *, post_copy: bool = False) -> None:
        self.detector = Plateau(options, post_copy=post_copy)
        self.state = PlateauState()

    def at(self, t: float, megabytes: float, *, judged: bool = True, throttle: int | None = None) -> Verdict:
        sample = Sample(
            t=t,
            iteration=1,
            remaining=int(megabytes * 10**6),
            boundary=True,
            bandwidth=RATE,
            throttle=throttle,
        )
        now = round(t * 1000)
        self.state, passed = self.detector.observe(self.state, sample, now, rate=RATE, judged=judged)
        if not passed:
            return Verdict.NONE
        found = self.detector.finding(self.state, sample, now, rate=RATE, budget_ms=10**9)
        self.limit = found.limit_ms
        return found.verdict

    def plateau(self, megabytes: float, *, first: int = 70, last: int = 130) -> list[Verdict]:
        return [self.at(float(t), megabytes) for t in range(first, last + 1, 5)]


DISRUPT = Options(allow_workload_disruption=True)


def test_passes_that_get_better_are_no_plateau() -> None:
    passes = Passes(DISRUPT)
    left = 8000.0
    for t in range(0, 300, 15):
        assert passes.at(float(t), left) is Verdict.NONE
        left *= 0.93
    assert passes.state.stalled_ms is None


def test_what_fits_is_allowed_after_two_slow_passes() -> None:
    passes = Passes(Options())
    assert passes.plateau(50, last=75) == [Verdict.NONE, Verdict.NONE]
    assert passes.at(80, 50) is Verdict.RELAX
    assert 500 < passes.limit <= 560


@pytest.mark.parametrize(("post_copy", "waits"), [(False, 60), (True, 40)])
def test_a_plateau_beyond_consent_is_waited_on_as_long_as_it_costs(post_copy: bool, waits: int) -> None:
    passes = Passes(DISRUPT, post_copy=post_copy)
    found = passes.plateau(400, last=250)
    first = found.index(Verdict.SWITCH)
    assert 70 + 5 * first == 70 + waits


def test_a_better_moment_is_waited_for() -> None:
    passes = Passes(DISRUPT)
    assert passes.at(70, 400) is Verdict.NONE
    assert {passes.at(float(t), 700) for t in range(75, 140, 5)} == {Verdict.NONE}
    assert passes.at(140, 410) is Verdict.SWITCH


def test_without_consent_the_limit_goes_to_what_is_allowed_and_hopeless_is_given_up_late() -> None:
    passes = Passes(Options())
    assert passes.at(70, 2000) is Verdict.NONE
    found = {t: passes.at(float(t), 2000) for t in range(75, 300, 5)}
    assert found[110] is Verdict.RELAX
    assert found[250] is Verdict.RELAX
    assert found[255] is Verdict.GIVE_UP, "180 s after the second pass that was hopeless"
    near = Passes(Options())
    assert near.at(70, 200) is Verdict.NONE
    assert {near.at(float(t), 200) for t in range(75, 1000, 5)} == {Verdict.NONE, Verdict.RELAX}


def test_a_guest_that_calms_down_is_not_stalled_any_more() -> None:
    passes = Passes(DISRUPT)
    passes.plateau(400, last=110)
    assert passes.state.stalled_ms is not None
    assert passes.at(112, 300) is not Verdict.NONE or passes.state.calm_passes == 1
    passes.at(114, 290)
    assert passes.state.stalled_ms is None


def test_nothing_is_judged_on_a_sick_link_or_while_the_guest_is_slowed_down() -> None:
    passes = Passes(DISRUPT)
    assert {passes.at(float(t), 400, judged=False) for t in range(0, 300, 5)} == {Verdict.NONE}
    slowed = Passes(DISRUPT)
    found = {slowed.at(float(t), 400, throttle=20 + t // 10) for t in range(0, 300, 5)}
    assert found == {Verdict.NONE}


def test_two_events_of_one_pass_count_once() -> None:
    passes = Passes(DISRUPT)
    for t in range(70, 100, 5):
        passes.at(float(t), 400)
        passes.at(t + 0.05, 400)
    assert passes.state.passes == 5


def test_a_cap_that_is_lifted_at_the_end_does_not_count_where_the_link_is_known() -> None:
    blind = Passes(Options(bandwidth_bps=RATE))
    assert set(blind.plateau(500, last=105)) == {Verdict.NONE}, "5 s at the capped rate"
    known = Passes(Options(bandwidth_bps=RATE, switchover_bps=10 * RATE))
    assert known.plateau(500, last=80)[-1] is Verdict.RELAX
    assert known.limit > 5000, "QEMU compares with the capped rate; the pause will be half a second"
