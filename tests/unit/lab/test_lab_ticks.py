# SPDX-License-Identifier: Apache-2.0
"""Ticks are found however the console's bytes arrive, and a guest that stood still is found out."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from launcher.lab.ticks import Chunk, Tick, continuity, parse

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
