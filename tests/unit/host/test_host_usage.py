# SPDX-License-Identifier: Apache-2.0
"""Numbers of this very host."""

from __future__ import annotations

import os
from pathlib import Path

import psutil

from launcher.host import usage


def test_the_numbers_are_those_of_this_host() -> None:
    before = usage.look()
    total = psutil.virtual_memory().total
    assert 0 < before.free_memory < total
    assert 0 < before.used_memory < total
    assert 1 <= before.sockets <= (os.cpu_count() or 1)
    assert before.free_swap + before.used_swap == psutil.swap_memory().total
    burnt = 0
    while usage.look().cpu_time_s == before.cpu_time_s:  # it counts in hundredths of a second
        burnt += 1
    assert usage.look().cpu_time_s > before.cpu_time_s


def test_sockets_are_counted_once(tmp_path: Path) -> None:
    for cpu, package in enumerate(("0", "0", "1", "1")):
        topology = tmp_path / f"cpu{cpu}" / "topology"
        topology.mkdir(parents=True)
        (topology / "physical_package_id").write_text(f"{package}\n")
    assert usage._sockets(tmp_path) == 2
    assert usage._sockets(tmp_path / "none") == 1
