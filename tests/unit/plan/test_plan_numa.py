# SPDX-License-Identifier: Apache-2.0
"""Guests that mirror the host's NUMA cells."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plan_manifest import context, two_sockets

from launcher.errors import Exhausted, InvalidSpec
from launcher.plan.facts import Distance, NodeFacts
from launcher.plan.model import MemNode
from launcher.plan.numa import guest_numa, split_memory
from launcher.plan.pinning import cputune
from launcher.units import GIB, MIB

DOMAIN = """
cpu: {cores: %d, dedicatedCpuPlacement: true, numa: {guestMappingPassthrough: {}}}
memory: {guest: 4Gi, hugepages: {pageSize: 1Gi}}
"""


def test_leftover_pages_go_to_the_first_cells() -> None:
    assert split_memory(10 * GIB, GIB, 3) == (4 * GIB, 3 * GIB, 3 * GIB)


@given(pages=st.integers(1, 10_000), cells=st.integers(1, 16), size=st.sampled_from([2 * MIB, GIB]))
def test_a_split_loses_nothing_and_is_even(pages: int, cells: int, size: int) -> None:
    if pages < cells:
        with pytest.raises(Exhausted):
            split_memory(pages * size, size, cells)
        return
    sizes = split_memory(pages * size, size, cells)
    assert sum(sizes) == pages * size
    assert all(part % size == 0 for part in sizes)
    assert max(sizes) - min(sizes) <= size
    assert list(sizes) == sorted(sizes, reverse=True)


def test_memory_must_be_whole_pages() -> None:
    with pytest.raises(InvalidSpec, match="no multiple of the page size"):
        split_memory(3 * MIB, 2 * MIB, 1)


def test_guest_cells_are_numbered_anew_and_host_cells_are_not() -> None:
    planned = context(DOMAIN % 2, facts=NodeFacts(cells=two_sockets()), cpuset=(4, 5))
    numa = guest_numa(planned, cputune(planned), GIB)
    assert numa is not None
    assert [(cell.id, cell.vcpus, cell.memory) for cell in numa.cells] == [(0, (0, 1), 4 * GIB)]
    assert numa.cells[0].distances == (Distance(cell=0, value=10),)
    assert numa.tune.nodes == (1,)
    assert numa.tune.memnodes == (MemNode(cell=0, node=1),)
    assert [page.cell for page in numa.pages] == [0]


def test_two_cells_share_vcpus_memory_and_distances() -> None:
    planned = context(DOMAIN % 4, facts=NodeFacts(cells=two_sockets()), cpuset=(0, 8, 4, 12))
    numa = guest_numa(planned, cputune(planned), GIB)
    assert numa is not None
    assert [cell.vcpus for cell in numa.cells] == [(0, 1), (2, 3)]
    assert [cell.memory for cell in numa.cells] == [2 * GIB, 2 * GIB]
    assert numa.cells[1].distances == (Distance(cell=0, value=21), Distance(cell=1, value=10))


def test_an_ordinary_guest_mirrors_nothing() -> None:
    planned = context("{cpu: {cores: 2}, memory: {guest: 1Gi}}")
    assert guest_numa(planned, cputune(planned), GIB) is None
