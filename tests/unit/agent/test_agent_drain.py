# SPDX-License-Identifier: Apache-2.0
"""What a drain moves, in which order, where to, and what it says of what stays."""

from __future__ import annotations

import msgspec
import pytest
from agent_nodes import accepted, manifest, node, site
from hypothesis import given
from hypothesis import strategies as st

from launcher.agent.drain_plan import (
    Candidate,
    Leaving,
    choose,
    in_order,
    is_there,
    predicted_s,
    refusals,
    stays,
)
from launcher.agent.records import InstanceRecord
from launcher.units import GIB


def record(strategy: str = "", **changes: object) -> InstanceRecord:
    made = accepted(manifest(), site(node()))
    spec = msgspec.structs.replace(made.defaulted.spec, eviction_strategy=strategy or None)
    defaulted = msgspec.structs.replace(made.defaulted, spec=spec)
    return msgspec.structs.replace(made, defaulted=defaulted, **changes)


@pytest.mark.parametrize(
    ("strategy", "unset", "why"),
    [
        ("LiveMigrate", "", ""),
        ("LiveMigrateIfPossible", "None", ""),
        ("", "LiveMigrate", ""),
        ("", "None", "evictionStrategy None"),
        ("", "", "evictionStrategy None"),
        ("None", "LiveMigrate", "evictionStrategy None"),
        ("External", "LiveMigrate", "evictionStrategy External: status.evacuationNodeName"),
    ],
)
def test_the_strategy_decides(strategy: str, unset: str, why: str) -> None:
    said = stays(record(strategy), unset=unset)
    assert said.startswith(why) if why else said == ""


def test_what_does_not_run_or_goes_anyway_is_not_moved() -> None:
    assert "Scheduled" in stays(record(phase="Scheduled"), unset="LiveMigrate")
    assert "deleted" in stays(record(desired="deleted"), unset="LiveMigrate")


def test_a_node_with_what_has_ended_or_left_is_empty() -> None:
    assert is_there(record())
    for gone in (
        record(phase="Succeeded"),
        record(phase="Failed"),
        record(moved_to="b"),
        record(incoming="x"),
    ):
        assert not is_there(gone)


def test_the_longest_goes_first() -> None:
    lengths = {"a/small": 1.0, "a/large": 60.0, "a/middle": 7.0, "b/middle": 7.0}
    order = in_order(Leaving(key=key, memory=1, predicted_s=s) for key, s in lengths.items())
    assert [one.key for one in order] == ["a/large", "a/middle", "b/middle", "a/small"]


def test_the_slower_of_cap_and_link_counts() -> None:
    assert predicted_s(GIB, cap=GIB // 2, link=GIB) == 2
    assert predicted_s(GIB, cap=0, link=GIB) == 1
    assert predicted_s(GIB, cap=0, link=0) == pytest.approx(9.76, abs=0.01)


ROOMY = Candidate(name="roomy", memory_left=8 * GIB)
TIGHT = Candidate(name="tight", memory_left=2 * GIB)
FULL = Candidate(name="full", memory_left=16 * GIB, inbound_left=0)
AWAY = Candidate(name="away", why="it does not answer")
NODES = (TIGHT, AWAY, ROOMY, FULL)


@pytest.mark.parametrize(
    ("wanted", "tried", "chosen"),
    [
        (GIB, (), "roomy"),
        (GIB, ("roomy",), "tight"),
        (GIB, ("roomy", "tight"), "full"),
        (4 * GIB, ("roomy",), "full"),
        (32 * GIB, (), ""),
        (GIB, ("roomy", "tight", "full"), ""),
    ],
)
def test_it_goes_where_most_is_left(wanted: int, tried: tuple[str, ...], chosen: str) -> None:
    assert choose(wanted, NODES, {}, tried) == chosen


def test_equals_are_taken_in_turn() -> None:
    nodes = tuple(Candidate(name=name) for name in "abc")
    given_to: dict[str, int] = {}
    for _ in range(7):
        name = choose(1, nodes, given_to, ())
        given_to[name] = given_to.get(name, 0) + 1
    assert given_to == {"a": 3, "b": 2, "c": 2}


def test_every_node_says_why_it_took_nothing() -> None:
    said = refusals(4 * GIB, (TIGHT, AWAY, ROOMY), {"roomy": "the target refuses: no bridge"})
    assert said == (
        "tight: 2.0 GiB of memory left, 4.0 GiB needed; away: it does not answer; "
        "roomy: the target refuses: no bridge"
    )
    assert "no peers" in refusals(1, (), {})


@given(
    st.lists(
        st.tuples(st.one_of(st.none(), st.integers(0, 100)), st.integers(0, 2), st.booleans()), max_size=6
    ),
    st.integers(1, 100),
)
def test_none_is_chosen_only_when_none_has_room(
    found: list[tuple[int | None, int, bool]], wanted: int
) -> None:
    nodes = tuple(
        Candidate(name=str(i), memory_left=memory, inbound_left=inbound, why="away" if away else "")
        for i, (memory, inbound, away) in enumerate(found)
    )
    chosen = choose(wanted, nodes, {}, ())
    able = {n.name for n in nodes if not n.why and (n.memory_left is None or n.memory_left >= wanted)}
    assert chosen in able if able else chosen == ""
