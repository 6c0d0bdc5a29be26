# SPDX-License-Identifier: Apache-2.0
"""Numbers of I/O threads and who uses them."""

from __future__ import annotations

import pytest
from plan_manifest import manifest

from launcher.plan.iothreads import IOThreadLayout, iothread_layout


def disk(name: str, bus: str = "virtio", *, dedicated: bool = False) -> str:
    return f"{{name: {name}, disk: {{bus: {bus}}}, dedicatedIOThread: {str(dedicated).lower()}}}"


def layout(*disks: str, policy: str = "", cpus: str = "1", rest: str = "") -> IOThreadLayout:
    chosen = f"ioThreadsPolicy: {policy}, " if policy else ""
    resources = f"resources: {{requests: {{cpu: {cpus}}}}}"
    domain = f"{{{chosen}{rest}{resources}, devices: {{disks: [{', '.join(disks)}]}}}}"
    return iothread_layout(manifest(domain), current_vcpus=4)


def test_without_a_policy_and_dedicated_threads_there_are_none() -> None:
    assert layout(disk("a"), disk("b")) == IOThreadLayout()


def test_a_dedicated_thread_brings_one_for_the_others() -> None:
    found = layout(disk("a", dedicated=True), disk("b"), disk("c", "sata"))
    assert found == IOThreadLayout(count=2, disks={"a": 2, "b": 1})


def test_shared_is_one_thread_beside_the_dedicated_ones() -> None:
    plain = [disk(name) for name in "cdefg"]
    found = layout(disk("a", dedicated=True), disk("b", dedicated=True), *plain, policy="shared")
    assert found.count == 3
    assert found.disks == {"a": 2, "b": 3, "c": 1, "d": 1, "e": 1, "f": 1, "g": 1}


@pytest.mark.parametrize(("cpus", "count"), [("1", 2), ("500m", 2), ("1500m", 4), ("4", 4)])
def test_auto_makes_two_threads_for_each_requested_cpu(cpus: str, count: int) -> None:
    found = layout(*(disk(name) for name in "abcd"), policy="auto", cpus=cpus)
    assert found.count == count
    assert list(found.disks.values()) == [i % count + 1 for i in range(4)]


def test_auto_is_one_thread_beside_an_isolated_emulator() -> None:
    cpu = "cpu: {dedicatedCpuPlacement: true, isolateEmulatorThread: true}, "
    assert layout(disk("a"), disk("b"), policy="auto", cpus="4", rest=cpu).count == 1


def test_a_supplemental_pool_is_shared_by_all() -> None:
    pool = "ioThreads: {supplementalPoolThreadCount: 3}, "
    found = layout(disk("a", dedicated=True), disk("b"), policy="supplementalPool", rest=pool)
    assert found == IOThreadLayout(count=3, pool=(1, 2, 3))


def test_a_pool_size_alone_means_nothing() -> None:
    assert layout(disk("a"), rest="ioThreads: {supplementalPoolThreadCount: 3}, ") == IOThreadLayout()


def test_the_scsi_controller_gets_the_next_plain_thread() -> None:
    found = layout(disk("a"), disk("b"), disk("c", "scsi", dedicated=True), policy="auto", cpus="2")
    assert (found.count, found.scsi, found.scsi_queues) == (3, 1, 4)
    found = layout(disk("a"), disk("c", "scsi", dedicated=True), disk("d", "sata"), policy="auto", cpus="2")
    assert (found.count, found.scsi) == (3, 2)
