# SPDX-License-Identifier: Apache-2.0
"""A program for tests, run inside a node: makes or releases the steps of a file, and says so before each.

``make-and-stay`` and ``adopt-and-stay`` look after them until standard input ends.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from launcher.network.executor import NetworkExecutor
from launcher.plan.steps import MakeDirectory, decode


async def main(verb: str, file: str) -> None:
    """Make (or, from the last to the first, release) every step of ``file``."""
    if verb.endswith("-and-stay"):
        await stay(verb.removesuffix("-and-stay"), file)
        return
    steps = [decode(line) for line in Path(file).read_text().splitlines()]
    executor = NetworkExecutor()
    print(f"pid {os.getpid()}", flush=True)
    for number, step in enumerate(steps if verb == "make" else list(reversed(steps))):
        print(number, flush=True)
        if isinstance(step, MakeDirectory):
            if verb == "make":
                Path(step.path).mkdir(mode=step.mode, parents=True, exist_ok=True)
            else:
                for left in Path(step.path).glob("*"):
                    left.unlink()
                Path(step.path).rmdir()
        elif verb == "make":
            await executor.make(step)
        else:
            await executor.release(step)
    await executor.close()
    print("done", flush=True)


async def stay(verb: str, file: str) -> None:
    """Make or take up what is of a network, and look after it."""
    executor = NetworkExecutor()
    for line in Path(file).read_text().splitlines():
        step = decode(line)
        if verb == "adopt":
            executor.take_up(step)
        elif not isinstance(step, MakeDirectory):
            await executor.make(step)
    print("staying", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await executor.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
