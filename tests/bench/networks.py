# SPDX-License-Identifier: Apache-2.0
"""How long the networks of guests take to make and to remove, and how that grows with their number.

Run as a program it makes its own network and mount namespaces first: nothing of the machine is touched.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

sys.path.append(str(Path(__file__).parents[1] / "node"))

import msgspec
from network_plans import masquerade

from launcher.host import run as running
from launcher.network.executor import NetworkExecutor
from launcher.plan.steps import AnyStep, MakeDirectory

COUNTS: Final = (1, 10, 50)
TIMEOUT_S: Final = 300.0


@dataclass(frozen=True, slots=True)
class Round:
    """Times of ``count`` networks, in seconds, and how many programs they needed."""

    count: int
    made_s: float
    last_s: float
    removed_s: float
    programs: int


def report() -> None:
    """Print a table; where it cannot be measured, why."""
    heads = "".join(f"{head:>10}" for head in ("made", "each", "the last", "removed"))
    print(f"\n{'networks of guests behind masquerade':56}{heads}")
    if os.geteuid() != 0 or not all(map(shutil.which, ("unshare", "dnsmasq"))):
        print("not measured: it needs root, unshare and dnsmasq")
        return
    for count in COUNTS:
        command = ["unshare", "--net", "--mount", "--", sys.executable, __file__, str(count)]
        done = subprocess.run(command, capture_output=True, timeout=TIMEOUT_S, check=False)
        if done.returncode != 0:
            print(f"not measured: {done.stderr.decode().strip()[-300:]}")
            return
        one = msgspec.json.decode(done.stdout, type=Round)
        name = f"{one.count}, one after the other ({one.programs / one.count:.0f} program each: dnsmasq)"
        print(
            f"{name:56}{one.made_s:8.2f} s{one.made_s / one.count * 1e3:7.0f} ms"
            f"{one.last_s * 1e3:7.0f} ms{one.removed_s:8.2f} s"
        )


async def measured(count: int, scratch: Path) -> Round:
    """Make ``count`` networks in this namespace, and remove them."""
    programs = 0
    original = running._spawn

    async def counted(*given: object) -> object:
        nonlocal programs
        programs += 1
        return await original(*given)  # type: ignore[arg-type]

    running._spawn = counted  # type: ignore[assignment]
    executor = NetworkExecutor()
    networks = [[_below(scratch, step) for step in masquerade(number)] for number in range(1, count + 1)]
    began = last = time.monotonic()
    for steps in networks:
        last = time.monotonic()
        for step in steps:
            if isinstance(step, MakeDirectory):
                Path(step.path).mkdir(parents=True)
            else:
                await executor.make(step)
    made = time.monotonic()
    for steps in networks:
        for step in reversed(steps):
            if not isinstance(step, MakeDirectory):
                await executor.release(step)
    removed = time.monotonic()
    await executor.close()
    return Round(count, made - began, made - last, removed - made, programs)


def _below(scratch: Path, step: AnyStep) -> AnyStep:
    """The step with its files below ``scratch``."""
    text = msgspec.json.encode(step).decode().replace("/run/launcher", str(scratch))
    return msgspec.json.decode(text, type=AnyStep)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)  # dnsmasq is nobody
        print(msgspec.json.encode(asyncio.run(measured(int(sys.argv[1]), Path(folder)))).decode())
