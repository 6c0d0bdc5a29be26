# SPDX-License-Identifier: Apache-2.0
"""The max_downtime ramp: what runs, and KubeVirt's with its quirks."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.migration.options import RampOptions
from launcher.migration.policy import Outcome
from launcher.migration.ramp import ClassicRamp, Ramp, RampState
from launcher.migration.sample import Sample


def limits(
    ramp: Ramp | ClassicRamp,
    iteration: Callable[[float], int],
    *,
    until: float,
    fail: frozenset[int] = frozenset(),
) -> list[tuple[float, int]]:
    """The (time, ms) of each call, polled every 0.4 s; the calls numbered in ``fail`` fail."""
    state = RampState()
    made: list[tuple[float, int]] = []
    limit: int | None = None
    for poll in range(1, round(until / 0.4) + 1):
        t = round(poll * 0.4, 1)
        state, action = ramp.step(state, Sample(t=t, iteration=iteration(t), max_downtime_ms=limit))
        if action is None:
            continue
        failed = len(made) in fail
        made.append((t, action.ms))
        limit = limit if failed else action.ms
        state = ramp.settle(state, Outcome(action=action, t=t, error="no" if failed else ""))
    return made


def at_once(_t: float) -> int:
    return 9


SAME = [
    pytest.param(
        RampOptions(),
        1050,
        lambda t: 3 if t >= 75.2 else 2,
        170,
        [
            (0.4, 150),
            (75.2, 278),
            (85.2, 406),
            (95.2, 534),
            (105.2, 662),
            (115.2, 790),
            (125.2, 918),
            (135.2, 1046),
            (145.2, 1050),
        ],
        id="long first passes",
    ),
    pytest.param(
        RampOptions(),
        900,
        lambda t: 3 if t >= 4 else 1,
        100,
        [
            (0.4, 150),
            (10.4, 257),
            (20.4, 364),
            (30.4, 471),
            (40.4, 578),
            (50.4, 685),
            (60.4, 792),
            (70.4, 899),
            (80.4, 900),
        ],
        id="defaults",
    ),
    pytest.param(
        RampOptions(initial_ms=100, steps=3, start_iteration=2, cooldown_s=1),
        1000,
        at_once,
        6,
        [(0.4, 100), (1.6, 400), (2.8, 700), (4.0, 1000)],
        id="few quick steps",
    ),
    pytest.param(RampOptions(initial_ms=5000), 100, at_once, 60, [(0.4, 100)], id="initial above ceiling"),
    pytest.param(
        RampOptions(),
        155,
        at_once,
        70,
        [(0.4, 150), (10.4, 151), (20.4, 152), (30.4, 153), (40.4, 154), (50.4, 155)],
        id="steps of one millisecond",
    ),
]


@pytest.mark.parametrize(("options", "ceiling", "iteration", "until", "expected"), SAME)
@pytest.mark.parametrize("kind", [Ramp, ClassicRamp])
def test_both_ramps_agree_where_nothing_fails(
    kind: type[Ramp | ClassicRamp],
    options: RampOptions,
    ceiling: int,
    iteration: Callable[[float], int],
    until: float,
    expected: list[tuple[float, int]],
) -> None:
    assert limits(kind(options, ceiling), iteration, until=until) == expected


@pytest.mark.parametrize(
    ("options", "ceiling", "fail", "classic", "ours"),
    [
        pytest.param(
            RampOptions(),
            900,
            {0},
            [(0.4, 150), (0.8, 407), (10.8, 514), (20.8, 621)],
            [(0.4, 150), (0.8, 150), (10.8, 257), (20.8, 364)],
            id="a failed first call does not skip the initial value",
        ),
        pytest.param(
            RampOptions(),
            250,
            {0},
            [(0.4, 150)],
            [(0.4, 150), (0.8, 150), (10.8, 164), (20.8, 178)],
            id="a failed first call is repeated under a low ceiling",
        ),
        pytest.param(
            RampOptions(initial_ms=0),
            900,
            set(),
            [(round(0.4 * n, 1), 0) for n in range(1, 63)],
            [(0.4, 1), (10.4, 129), (20.4, 257)],
            id="an initial value of 0 is not set for ever",
        ),
    ],
)
def test_where_the_ramp_differs_from_the_classic_one(
    options: RampOptions,
    ceiling: int,
    fail: set[int],
    classic: list[tuple[float, int]],
    ours: list[tuple[float, int]],
) -> None:
    failing = frozenset(fail)
    assert limits(ClassicRamp(options, ceiling), at_once, until=25, fail=failing) == classic
    assert limits(Ramp(options, ceiling), at_once, until=25, fail=failing) == ours


def test_the_ramp_never_lowers_a_limit_that_somebody_else_raised() -> None:
    ramp = Ramp(RampOptions(), 900)
    state = RampState(limit_ms=150, since_ms=0)
    _, action = ramp.step(state, Sample(t=60, iteration=5, max_downtime_ms=2000))
    assert action is None


@given(
    initial=st.integers(1, 3000),
    steps=st.integers(1, 20),
    start=st.integers(0, 5),
    cooldown=st.integers(1, 20),
    ceiling=st.integers(1, 2000),
    fail=st.frozensets(st.integers(0, 10)),
    slow=st.floats(0.2, 30),
)
def test_the_limit_rises_to_the_ceiling_and_no_further(
    initial: int, steps: int, start: int, cooldown: int, ceiling: int, fail: frozenset[int], slow: float
) -> None:
    options = RampOptions(initial_ms=initial, steps=steps, start_iteration=start, cooldown_s=cooldown)
    made = limits(Ramp(options, ceiling), lambda t: int(t / slow), until=120, fail=fail)
    worked = [(t, ms) for n, (t, ms) in enumerate(made) if n not in fail]
    values = [ms for _, ms in worked]
    assert values == sorted(set(values))
    assert max(ms for _, ms in made) <= ceiling
    assert all(b - a >= cooldown - 1e-6 for (a, _), (b, _) in itertools.pairwise(worked))
