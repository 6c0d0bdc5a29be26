# SPDX-License-Identifier: Apache-2.0
"""Whole simulated migrations, and what must hold for every policy whatever the guest and the link do."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from launcher.migration.compose import POLICIES, make_policy
from launcher.migration.options import QEMU_MAX_DOWNTIME_MS, Options, Workload
from launcher.migration.policy import Abort, PauseGuest, SetMaxDowntime, StartPostCopy
from launcher.migration.simulator import Pages, Scenario, Simulated, Span, simulate

MB = 10**6
COLD = Pages(size=400 * MB)
LINK = 40 * MB
POST_COPY = Options(allow_post_copy=True, allow_workload_disruption=True)
PAUSE = Options(allow_workload_disruption=True)


def migrate(scenario: Scenario, options: Options | None = None, policy: str = "standard") -> Simulated:
    size = sum(p.size for p in scenario.pages)
    return simulate(scenario, make_policy(policy, options or Options(), Workload(memory_bytes=size)))


def writing(bps: float, **fields: object) -> Scenario:
    hot = Pages(size=100 * MB, write_bps=bps)
    return Scenario(pages=(COLD, hot), link_bps=LINK, **fields)  # type: ignore[arg-type]


def test_an_idle_guest_moves_in_one_pass_and_a_bit() -> None:
    result = migrate(writing(0))
    assert result.outcome == "completed"
    assert result.downtime_ms is not None
    assert result.downtime_ms <= 150 + 50, "what was left fitted into the first limit"
    assert result.t == pytest.approx(500 / 40, rel=0.05)
    assert (result.samples[-1].iteration or 0) <= 2


def test_a_guest_that_writes_less_than_the_link_carries_converges() -> None:
    result = migrate(writing(30 * MB))
    assert result.outcome == "completed"
    assert result.t < 60
    assert result.downtime_ms is not None
    assert result.downtime_ms <= 900 + 50


def test_a_guest_that_writes_more_reaches_a_plateau_and_is_given_up() -> None:
    result = migrate(writing(100 * MB))
    assert result.outcome == "aborted"
    assert 150 < result.t < 151
    plateau = [s.remaining for s in result.samples if s.boundary and s.t > 60]
    assert all(70 * MB < (remaining or 0) < 100 * MB for remaining in plateau)


def test_consent_ends_a_plateau() -> None:
    stopped = migrate(writing(100 * MB), PAUSE)
    last = stopped.outcomes[-1].action
    assert isinstance(last, SetMaxDowntime)
    assert (stopped.outcome, last.ms) == ("completed", QEMU_MAX_DOWNTIME_MS)
    assert stopped.t < 110, "long before the completion timeout: the plateau was found"
    taken = migrate(writing(100 * MB), POST_COPY)
    assert (taken.outcome, taken.post_copy, taken.downtime_ms) == ("completed", True, 50)


def test_a_burst_is_waited_out() -> None:
    burst = writing(100 * MB, work_spans=(Span(start=60, end=1e9, factor=0.05),))
    assert migrate(burst).outcome == "completed"
    assert migrate(burst, policy="classic-stall").outcome == "aborted", "it gives up at the first plateau"


def test_a_dead_link_is_noticed_by_the_bytes_that_do_not_come() -> None:
    big = Scenario(
        pages=(Pages(size=4000 * MB),), link_bps=LINK, link_spans=(Span(start=10, end=1e9, factor=0),)
    )
    result = migrate(big)
    assert result.outcome == "aborted"
    assert result.t == pytest.approx(85, abs=1)
    assert "link is dead" in result.outcomes[-1].action.reason
    assert migrate(big, policy="classic-stall").t > 590, "it believes the rate that is still reported"


def test_nothing_irreversible_is_done_on_a_dead_link() -> None:
    options = Options(allow_post_copy=True, allow_workload_disruption=True, progress_timeout_s=0)
    scenario = writing(100 * MB, link_spans=(Span(start=30, end=90, factor=0),))
    result = migrate(scenario, options)
    switch = next(o.t for o in result.outcomes if isinstance(o.action, StartPostCopy))
    assert result.outcome == "completed"
    assert switch > 90


def test_the_first_limit_comes_before_the_first_byte() -> None:
    result = migrate(Scenario(pages=(Pages(size=4 * MB),), link_bps=LINK))
    assert (result.outcomes[0].t, result.outcome) == (0.0, "completed")


spans = st.builds(
    lambda start, length, factor: Span(start=start, end=start + length, factor=factor),
    st.floats(0, 200),
    st.floats(1, 120),
    st.sampled_from([0.0, 0.1, 0.5, 2.0]),
)
scenarios = st.builds(
    lambda cold, hot, load, link, capped, link_spans, work_spans, failing: Scenario(
        pages=(Pages(size=cold * MB), Pages(size=hot * MB, write_bps=load * link * MB)),
        link_bps=link * MB,
        cap_bps=capped * link * MB,
        link_spans=tuple(link_spans),
        work_spans=tuple(work_spans),
        failing=failing,
        limit_s=900,
    ),
    cold=st.integers(10, 2000),
    hot=st.integers(1, 500),
    load=st.floats(0, 3),
    link=st.integers(20, 200),
    capped=st.sampled_from([0.0, 0.3, 0.9]),
    link_spans=st.lists(spans, max_size=2),
    work_spans=st.lists(spans, max_size=2),
    failing=st.frozensets(st.sampled_from(["StartPostCopy", "PauseGuest", "SetMaxDowntime"])),
)
options_ = st.builds(
    lambda post_copy, disruption, timeout, downtime: Options(
        allow_post_copy=post_copy,
        allow_workload_disruption=disruption,
        completion_timeout_per_gib_s=timeout,
        max_downtime_ms=downtime,
    ),
    post_copy=st.booleans(),
    disruption=st.booleans(),
    timeout=st.sampled_from([20, 60, 150]),
    downtime=st.sampled_from([50, 300, 900, 3000]),
)


@settings(max_examples=40, deadline=None)
@given(
    scenario=scenarios, options=options_, policy=st.sampled_from(["standard", "ramp", "detector", "fixed"])
)
def test_what_holds_for_every_guest_and_link(scenario: Scenario, options: Options, policy: str) -> None:
    result = migrate(scenario, options, policy)
    actions = [o.action for o in result.outcomes]
    worked = [o.action for o in result.outcomes if o.ok]
    limits = [a.ms for a in worked if isinstance(a, SetMaxDowntime)]
    assert limits == sorted(set(limits)), "the limit only rises"
    beyond = [ms for ms in limits if ms > options.max_downtime_ms]
    assert beyond in ([], [QEMU_MAX_DOWNTIME_MS]), "never above what is consented, but for a forced stop"
    assert options.allow_workload_disruption or not beyond
    assert sum(isinstance(a, StartPostCopy) for a in worked) <= 1
    assert sum(isinstance(a, PauseGuest) for a in worked) <= 1
    assert sum(isinstance(a, Abort) for a in actions) <= 1
    if any(isinstance(a, Abort) for a in actions):
        assert isinstance(actions[-1], Abort), "nothing follows an abort"
        assert result.outcome == "aborted"
    if not options.allow_workload_disruption:
        assert {type(a) for a in actions} <= {SetMaxDowntime, Abort}
    if not options.allow_post_copy:
        assert not result.post_copy
    # Post-copy on a link that is slow or dead is the only way not to end in time: the timeout or its double
    # (at least a minute more), and a minute for each of the three things that can be tried then.
    gib = -(-sum(p.size for p in scenario.pages) // 2**30)
    timeout_s = gib * options.completion_timeout_per_gib_s
    last = timeout_s + max(timeout_s, 60) + 3 * 68 + 2
    assert result.outcome != "running" or result.post_copy or last > scenario.limit_s
    assert result.post_copy or result.t <= last + 1


@settings(max_examples=15, deadline=None)
@given(scenario=scenarios, options=options_, policy=st.sampled_from(sorted(POLICIES)))
def test_a_state_that_was_written_down_decides_the_same(
    scenario: Scenario, options: Options, policy: str
) -> None:
    size = sum(p.size for p in scenario.pages)
    rules = make_policy(policy, options, Workload(memory_bytes=size))
    state = again = rules.initial()
    for sample in simulate(scenario, rules).samples[:400]:
        decision, repeated = rules.step(state, sample), rules.step(again, sample)
        assert decision == repeated
        state, again = decision.state, rules.decode(rules.encode(repeated.state))
