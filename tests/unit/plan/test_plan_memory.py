# SPDX-License-Identifier: Apache-2.0
"""What backs guest memory and where a guest cell is needed for it."""

from __future__ import annotations

import pytest
from plan_manifest import context

from launcher.plan.facts import NodeFacts, version
from launcher.plan.memory import MEMFD, backing, memory, single_cell
from launcher.plan.model import MemoryBacking, MemoryPlan
from launcher.units import GIB

HUGE = "memory: {guest: 1Gi, hugepages: {pageSize: 2Mi}}"
PLAIN = "memory: {guest: 1Gi}"
SHARED = "devices: {filesystems: [{name: f, virtiofs: {}}]}"
PASST = "devices: {interfaces: [{name: n, passtBinding: {}}]}"


@pytest.mark.parametrize(
    ("domain", "memfd", "expected"),
    [
        (f"{{{PLAIN}}}", None, None),
        (f"{{{HUGE}}}", None, MemoryBacking(hugepages=True, memfd=True)),
        (f"{{{HUGE}}}", "false", MemoryBacking(hugepages=True)),
        (f"{{{PLAIN}, {SHARED}}}", None, MemoryBacking(memfd=True, shared=True)),
        (f"{{{PLAIN}, {PASST}}}", None, MemoryBacking(memfd=True, shared=True)),
        (f"{{{HUGE}, {SHARED}}}", "false", MemoryBacking(hugepages=True, memfd=True, shared=True)),
    ],
)
def test_memory_is_backed_as_sharing_and_pages_need(
    domain: str, memfd: str | None, expected: MemoryBacking | None
) -> None:
    planned = context(domain, annotations={MEMFD: memfd} if memfd else None)
    assert backing(planned, None) == expected
    cells = single_cell(planned, memory(planned))
    assert bool(cells) is (expected is not None and expected.memfd)


def test_s390x_has_no_memfd_and_no_cell() -> None:
    planned = context(f"{{{HUGE}}}", architecture="s390x", facts=NodeFacts(arch="s390x"))
    assert backing(planned, None) == MemoryBacking(hugepages=True)
    assert single_cell(planned, memory(planned)) == ()


def test_the_one_cell_holds_vcpus_that_are_not_there_yet() -> None:
    planned = context(f"{{cpu: {{sockets: 1, maxSockets: 4}}, {HUGE}}}")
    assert [cell.vcpus for cell in single_cell(planned, memory(planned))] == [(0, 1, 2, 3)]


@pytest.mark.parametrize(
    ("release", "slots", "cells"), [((9, 4), 1, 1), ((9, 5), 0, 1), ((9, 6), 0, 0), ((12, 8), 0, 0)]
)
def test_room_for_memory_is_written_as_the_release_wants_it(
    release: tuple[int, int], slots: int, cells: int
) -> None:
    planned = context(
        "{memory: {guest: 1Gi, maxGuest: 4Gi}}", facts=NodeFacts(libvirt_version=version(*release))
    )
    assert memory(planned) == MemoryPlan(size=GIB, maximum=4 * GIB, slots=slots)
    assert len(single_cell(planned, memory(planned))) == cells


def test_no_room_beyond_the_size_is_no_room() -> None:
    assert memory(context("{memory: {guest: 1Gi, maxGuest: 1Gi}}")) == MemoryPlan(size=GIB)
