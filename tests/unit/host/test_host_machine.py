# SPDX-License-Identifier: Apache-2.0
"""Facts that the kernel tells: pools of huge pages, SMT, capabilities, programs and device files."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from launcher.host.hugepages import Pool, default_size, pools
from launcher.host.machine import look, may_lock_memory, opens, program, smt_active
from launcher.units import GIB, MIB


def pool(folder: Path, kib: int, count: str, free: str) -> None:
    found = folder / f"hugepages-{kib}kB"
    found.mkdir(parents=True)
    (found / "nr_hugepages").write_text(count)
    (found / "free_hugepages").write_text(free)


def test_pools_are_read_by_cell(tmp_path: Path) -> None:
    pool(tmp_path / "node1" / "hugepages", 2048, "64\n", "60\n")
    pool(tmp_path / "node0" / "hugepages", 1048576, "2\n", "0\n")
    pool(tmp_path / "node0" / "hugepages", 2048, "8\n", "8\n")
    (tmp_path / "node0" / "hugepages" / "other").mkdir()
    (tmp_path / "power").mkdir()
    assert pools(nodes=tmp_path, whole_host=tmp_path / "absent") == (
        Pool(cell=0, size=2 * MIB, count=8, free=8),
        Pool(cell=0, size=GIB, count=2, free=0),
        Pool(cell=1, size=2 * MIB, count=64, free=60),
    )


def test_a_kernel_without_numa_has_one_cell(tmp_path: Path) -> None:
    pool(tmp_path / "mm", 2048, "4", "3")
    assert pools(nodes=tmp_path / "absent", whole_host=tmp_path / "mm") == (
        Pool(cell=0, size=2 * MIB, count=4, free=3),
    )


def test_a_pool_that_cannot_be_read_is_none(tmp_path: Path) -> None:
    pool(tmp_path / "node0" / "hugepages", 2048, "many", "3")
    assert pools(nodes=tmp_path, whole_host=tmp_path / "absent") == ()


def test_the_default_size_of_huge_pages(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal:  100 kB\nHugepagesize:    1048576 kB\nHugetlb:   0 kB\n")
    assert default_size(meminfo) == GIB
    meminfo.write_text("MemTotal:  100 kB\n")
    assert default_size(meminfo) is None
    assert default_size(tmp_path / "absent") is None


@pytest.mark.parametrize(("text", "active"), [("1\n", True), ("0\n", False)])
def test_smt(tmp_path: Path, text: str, active: bool) -> None:
    (tmp_path / "active").write_text(text)
    assert smt_active(tmp_path / "active") is active
    assert smt_active(tmp_path / "absent") is None


def test_locking_memory_needs_no_limit_or_the_capability(tmp_path: Path) -> None:
    status = tmp_path / "status"
    status.write_text("Name:\tpytest\nCapEff:\t000000a80425fb\n")
    assert may_lock_memory(8 * MIB, status) is False
    assert may_lock_memory(resource.RLIM_INFINITY, status) is True
    status.write_text("CapEff:\t000001ffffffffff\n")
    assert may_lock_memory(8 * MIB, status) is True
    assert may_lock_memory(8 * MIB, tmp_path / "absent") is False


def test_programs_are_found_beside_the_path(tmp_path: Path) -> None:
    made = tmp_path / "beside-qemu"
    made.touch(mode=0o755)
    assert program("beside-qemu", [str(tmp_path)]) == str(made)
    assert program("beside-qemu", []) == ""
    made.chmod(0o644)
    assert program("beside-qemu", [str(tmp_path)]) == ""


def test_devices_must_open(tmp_path: Path) -> None:
    assert opens(Path("/dev/null")) is True
    assert opens(tmp_path / "absent") is False
    assert opens(tmp_path) is False  # a directory


def test_this_machine() -> None:
    found = look()
    assert found.kernel == os.uname().release
    assert found.cpus == os.cpu_count()
    assert found.memory > 64 * MIB
