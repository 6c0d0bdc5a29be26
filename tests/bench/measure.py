# SPDX-License-Identifier: Apache-2.0
"""CPU time of a call on one core, and resident memory of processes. Judges nothing."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

ROUNDS = 15
RUN_S = 0.08
MEBIBYTE = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A call to be measured, and how many of what is counted one call does."""

    name: str
    call: Callable[[], object]
    each: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """CPU seconds of one of what a case counts: the best round and the median of the rounds."""

    best_s: float
    median_s: float


def pin() -> int | None:
    """Keep this process on one core, the last that it may use; None where that is not to be had."""
    if not hasattr(os, "sched_setaffinity"):
        return None
    core = max(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {core})
    return core


def measure(cases: Sequence[Case], *, rounds: int = ROUNDS, run_s: float = RUN_S) -> list[Timing]:
    """Repeat each call for about ``run_s`` CPU seconds in each round.

    All cases take turns in each round: what disturbs the machine for seconds disturbs all of them alike.
    """
    counts = [_count(case.call, run_s) for case in cases]
    spent: list[list[float]] = [[] for _ in cases]
    for _ in range(rounds):
        for case, count, times in zip(cases, counts, spent, strict=True):
            times.append(_spent(case.call, count) / count / case.each)
    return [Timing(best_s=min(times), median_s=statistics.median(times)) for times in spent]


def memory_after(statement: str) -> float:
    """Resident memory, in MiB, of a Python that has done ``statement``."""
    program = f"{statement}\nimport psutil\nprint(psutil.Process().memory_info().rss)"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    return int(done.stdout) / MEBIBYTE


def memory_of_idle_agent(scratch: Path, *, ready_s: float = 30.0, idle_s: float = 2.0) -> float:
    """Resident memory, in MiB, of a ``launcherd`` that serves and has nothing to do.

    Its libvirt is the library's own test driver, so that no libvirtd is needed.

    Raises:
        TimeoutError: it did not get ready.
    """
    config = scratch / "launcherd.toml"
    config.write_text(
        f'state_dir = "{scratch}"\nrun_dir = "{scratch}"\nlog_format = "logfmt"\n'
        f'[listen]\nsocket = "{scratch}/l.sock"\n[libvirt]\nuri = "test:///default"\n'
    )
    program = Path(sys.executable).with_name("launcherd")
    with (
        (scratch / "log").open("w") as log,
        subprocess.Popen([program, "--config", config], stdout=log, stderr=log) as agent,
    ):
        try:
            deadline = time.monotonic() + ready_s
            while "message=ready" not in (scratch / "log").read_text():
                if time.monotonic() > deadline or agent.poll() is not None:
                    raise TimeoutError("launcherd is not ready: " + (scratch / "log").read_text())
                time.sleep(0.05)
            time.sleep(idle_s)
            return int(psutil.Process(agent.pid).memory_info().rss) / MEBIBYTE
        finally:
            agent.terminate()


def _count(call: Callable[[], object], run_s: float) -> int:
    """How many calls take about ``run_s``."""
    call()
    count, spent = 1, _spent(call, 1)
    while spent < run_s / 5:
        count *= 4
        spent = _spent(call, count)
    return max(1, round(count * run_s / spent))


def _spent(call: Callable[[], object], count: int) -> float:
    start = time.process_time()
    for _ in range(count):
        call()
    return time.process_time() - start
