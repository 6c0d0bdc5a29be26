# SPDX-License-Identifier: Apache-2.0
"""Dedicated CPUs: worked vectors, and what holds for every host and cpuset."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plan_manifest import context, two_sockets

from launcher.errors import Exhausted, HostUnsupported
from launcher.plan.facts import HostCPU, NodeFacts, NumaCell
from launcher.plan.model import IOThreadPin
from launcher.plan.pinning import EVEN_PARITY, CorePool, cputune

HOST = NodeFacts(cells=two_sockets())


@pytest.mark.parametrize(
    ("threads", "cores", "cpuset", "pins", "following"),
    [
        (1, 4, (0, 1, 2, 8, 9), (0, 8, 1, 9), (2,)),
        (2, 2, (0, 1, 2, 8, 9), (0, 8, 1, 9), (2,)),
        (1, 4, (0, 1, 2, 3, 4), (0, 1, 2, 3), (4,)),
        (2, 2, (0, 1, 4, 5, 12), (4, 12, 0, 1), (5,)),
        (2, 3, (0, 1, 4, 5, 8, 12), (0, 8, 4, 12, 1, 5), ()),
        (1, 6, (0, 1, 4, 5, 6, 8, 12), (0, 8, 1, 4, 12, 5), (6,)),
        (2, 4, (0, 1, 4, 5, 6, 8, 9, 12, 13, 14), (0, 8, 1, 9, 4, 12, 5, 13), (6, 14)),
    ],
)
def test_vcpus_follow_the_topology_and_not_the_cpuset(
    threads: int, cores: int, cpuset: tuple[int, ...], pins: tuple[int, ...], following: tuple[int, ...]
) -> None:
    pool = CorePool(two_sockets(), cpuset, threads)
    assert pool.take_cores(cores, strict=False) == pins
    assert tuple(pool.take_one("a test") for _ in following) == following
    assert pool.free == 0


def test_a_guest_that_mirrors_cells_gets_no_core_across_them() -> None:
    pool = CorePool(two_sockets(), (0, 1, 4, 5, 8, 12), 2)
    with pytest.raises(Exhausted, match="1 of 3 cores fit only across NUMA cells"):
        pool.take_cores(3, strict=True)


def test_a_pool_that_is_short_by_less_than_a_core_is_refused() -> None:
    with pytest.raises(Exhausted, match="4 dedicated CPUs are asked for, 3 are free"):
        CorePool(two_sockets(), (0, 8, 1), 2).take_cores(2, strict=False)


def test_nothing_is_pinned_without_dedicated_cpus() -> None:
    tune = cputune(context("{cpu: {cores: 2}, memory: {guest: 1Gi}}", cpuset=(0, 1)))
    assert not tune.vcpus
    assert not tune.emulator
    assert not tune.iothreads


def test_dedicated_cpus_need_a_cpuset() -> None:
    with pytest.raises(HostUnsupported, match="configure a cpuset"):
        cputune(context("{cpu: {cores: 2, dedicatedCpuPlacement: true}, memory: {guest: 1Gi}}"))


CPUS = "cpu: {cores: 4, dedicatedCpuPlacement: true%s}, memory: {guest: 1Gi}"
ISOLATED = CPUS % ", isolateEmulatorThread: true"
ONE_DISK = "devices: {disks: [{name: a, disk: {bus: virtio}}]}"
SHARED = f"{ONE_DISK}, ioThreadsPolicy: shared"
POOL = f"{ONE_DISK}, ioThreadsPolicy: supplementalPool, ioThreads: {{supplementalPoolThreadCount: 2}}"
TWO_DEDICATED = (
    "devices: {disks: [{name: a, disk: {bus: virtio}, dedicatedIOThread: true}, "
    "{name: b, disk: {bus: virtio}, dedicatedIOThread: true}, {name: c, disk: {bus: virtio}}]}"
)


def test_supplemental_threads_are_drawn_before_the_emulator() -> None:
    tune = cputune(context(f"{{{ISOLATED}, {POOL}}}", facts=HOST, cpuset=(0, 1, 2, 3, 4, 5, 6)))
    assert [pin.cpu for pin in tune.vcpus] == [0, 1, 2, 3]
    assert tune.iothreads == (IOThreadPin(iothread=1, cpus=(4,)), IOThreadPin(iothread=2, cpus=(5,)))
    assert tune.emulator == (6,)


@pytest.mark.parametrize(("cores", "emulator"), [(4, (4, 5)), (3, (3,))])
def test_the_emulator_completes_to_an_even_number(cores: int, emulator: tuple[int, ...]) -> None:
    domain = f"{{{ISOLATED.replace('cores: 4', f'cores: {cores}')}}}"
    tune = cputune(context(domain, facts=HOST, cpuset=tuple(range(8)), annotations={EVEN_PARITY: ""}))
    assert tune.emulator == emulator


def test_all_iothreads_share_an_isolated_emulators_cpu() -> None:
    tune = cputune(context(f"{{{ISOLATED}, {TWO_DEDICATED}}}", facts=HOST, cpuset=(0, 1, 2, 3, 4)))
    assert tune.iothreads == tuple(IOThreadPin(iothread=i, cpus=(4,)) for i in (1, 2, 3))


def test_fewer_iothreads_than_vcpus_split_the_cpuset() -> None:
    tune = cputune(context(f"{{{CPUS % ''}, {TWO_DEDICATED}}}", facts=HOST, cpuset=(2, 3, 4, 5)))
    assert [pin.cpus for pin in tune.iothreads] == [(2, 3), (4,), (5,)]


def test_more_iothreads_than_vcpus_go_round_the_cpuset() -> None:
    cpus = (CPUS % "").replace("cores: 4", "cores: 2")
    tune = cputune(context(f"{{{cpus}, {TWO_DEDICATED}}}", facts=HOST, cpuset=(2, 3)))
    assert [pin.cpus for pin in tune.iothreads] == [(3,), (2,), (3,)]


def test_only_vcpus_that_are_there_are_pinned() -> None:
    domain = "{cpu: {sockets: 2, maxSockets: 8, dedicatedCpuPlacement: true}, memory: {guest: 1Gi}}"
    assert [pin.cpu for pin in cputune(context(domain, cpuset=(6, 7))).vcpus] == [6, 7]


@st.composite
def hosts(draw: st.DrawFn) -> tuple[NumaCell, ...]:
    """Cells of cores of threads, numbered at random."""
    shape = draw(st.lists(st.lists(st.integers(1, 4), max_size=5), min_size=1, max_size=4))
    numbers = iter(draw(st.permutations(range(sum(map(sum, shape))))))
    cells = []
    for cell, cores in enumerate(shape):
        cpus: list[HostCPU] = []
        for threads in cores:
            siblings = tuple(next(numbers) for _ in range(threads))
            cpus.extend(HostCPU(id=cpu, siblings=siblings) for cpu in siblings)
        cells.append(NumaCell(id=cell, cpus=tuple(cpus)))
    return tuple(cells)


@given(
    cells=hosts(), threads=st.integers(1, 3), cores=st.integers(1, 8), strict=st.booleans(), data=st.data()
)
def test_pins_are_complete_distinct_and_inside_the_cpuset(
    cells: tuple[NumaCell, ...], threads: int, cores: int, strict: bool, data: st.DataObject
) -> None:
    known = sorted(cpu.id for cell in cells for cpu in cell.cpus)
    cpuset = tuple(data.draw(st.lists(st.sampled_from(known), unique=True))) if known else ()
    pool = CorePool(cells, cpuset, threads)
    assert pool.free == len(cpuset)
    try:
        pins = pool.take_cores(cores, strict=strict)
    except Exhausted:
        assert strict or len(cpuset) < cores * threads
        return
    assert len(pins) == cores * threads
    assert len(set(pins)) == len(pins)
    assert set(pins) <= set(cpuset)
    rest = [pool.take_one("a test") for _ in range(pool.free)]
    assert sorted((*pins, *rest)) == sorted(cpuset)
    home = {cpu.id: cell.id for cell in cells for cpu in cell.cpus}
    if strict:
        for start in range(0, len(pins), threads):
            assert len({home[cpu] for cpu in pins[start : start + threads]}) == 1


@given(cells=hosts(), cores=st.integers(1, 6))
def test_whole_cores_come_first(cells: tuple[NumaCell, ...], cores: int) -> None:
    siblings = {cpu.id: frozenset(cpu.siblings) for cell in cells for cpu in cell.cpus}
    whole = sum(1 for core in set(siblings.values()) if len(core) >= 2)
    try:
        pins = CorePool(cells, tuple(siblings), 2).take_cores(cores, strict=False)
    except Exhausted:
        return
    for guest_core in range(min(cores, whole)):
        first, second = pins[2 * guest_core : 2 * guest_core + 2]
        assert second in siblings[first]
