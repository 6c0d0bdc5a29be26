# SPDX-License-Identifier: Apache-2.0
"""Ticks are found however the console's bytes arrive, and a guest that stood still is found out."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from launcher.lab.ticks import Chunk, Tick, after_leaving, continuity, mishaps, parse, stamped

CONSOLE = b"GUEST UP\r\ntick 1 uptime 4.20\r\ndirty 6 MiB\r\ntick 2 uptime 5.20\r\ntick 3\r\ntick 4 up"


def _tick(number: int, at: float, node: str = "a") -> Tick:
    return Tick(number=number, uptime="", at=at, node=node)


@given(st.sets(st.integers(1, len(CONSOLE) - 1)))
def test_ticks_do_not_depend_on_how_the_bytes_arrive(cuts: set[int]) -> None:
    bounds = [0, *sorted(cuts), len(CONSOLE)]
    parts = [CONSOLE[start:end] for start, end in pairwise(bounds)]
    found = parse(Chunk(at=float(at), node="a", data=part) for at, part in enumerate(parts))
    assert [(tick.number, tick.uptime) for tick in found] == [(1, "4.20"), (2, "5.20"), (3, "")]


def test_a_line_that_ends_on_the_other_node_is_one_tick() -> None:
    chunks = [
        Chunk(at=1.0, node="a", data=b"tick 7 upt"),
        Chunk(at=2.5, node="b", data=b"ime 9.00\r\n"),
    ]
    assert parse(chunks) == (Tick(number=7, uptime="9.00", at=2.5, node="b"),)


def test_words_that_look_like_ticks_are_none() -> None:
    assert parse([Chunk(at=0.0, node="a", data=b"ticks 1\ntick one\ntick 2 of 3\n")]) == ()


def test_the_longest_gap_and_where_it_began() -> None:
    found = continuity([_tick(1, 0.0), _tick(2, 1.0), _tick(3, 2.4, "b"), _tick(4, 3.4, "b")])
    assert found is not None
    assert (found.first, found.last, found.missing, found.gap_after) == (1, 4, (), 2)
    assert found.within(1.41)
    assert not found.within(1.39)


def test_a_missing_tick_is_never_within_limits() -> None:
    found = continuity([_tick(1, 0.0), _tick(2, 1.0), _tick(5, 1.5)])
    assert found is not None
    assert found.missing == (3, 4)
    assert not found.within(1000.0)


def test_one_tick_says_nothing() -> None:
    assert continuity([_tick(1, 0.0)]) is None


def test_a_tick_that_came_twice_is_never_within_limits() -> None:
    found = continuity([_tick(1, 0.0), _tick(2, 1.0), _tick(1, 1.5), _tick(2, 2.0), _tick(3, 2.5)])
    assert found is not None
    assert (found.missing, found.twice) == ((), (1, 2))
    assert not found.within(1000.0)


def test_a_source_that_goes_on_beside_its_target_is_seen() -> None:
    moved = [_tick(1, 0.0), _tick(2, 1.0), _tick(3, 2.0, "b")]
    assert after_leaving(moved) == ()
    assert after_leaving([*moved, _tick(3, 2.1), _tick(4, 3.0, "b")]) == (_tick(3, 2.1), _tick(4, 3.0, "b"))


def test_a_guest_tells_of_a_crash_and_of_its_new_start() -> None:
    console = ["GUEST UP uptime 5", "tick 1", "[ 18.3] BUG: unable to handle page fault", "tick 2"]
    console += ["Kernel panic - not syncing: Fatal exception", "GUEST UP uptime 6", "BAD page 7 in round 2"]
    assert list(mishaps(console)) == [console[2], *console[4:]]
    assert list(mishaps(console[:2])) == []


def test_lines_are_stamped_by_node() -> None:
    chunks = [
        Chunk(at=10.0, node="a", data=b"tick 1\r\nti"),
        Chunk(at=11.5, node="b", data=b"tick 2\r\n"),
        Chunk(at=12.0, node="a", data=b"ck 9\ncu"),
    ]
    assert list(stamped(chunks)) == [
        "    0.000 a tick 1",
        "    1.500 b tick 2",
        "    2.000 a tick 9",
        "      cut a cu",
    ]
    assert list(stamped([])) == []
