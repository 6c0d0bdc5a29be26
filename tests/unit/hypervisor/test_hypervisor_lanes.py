# SPDX-License-Identifier: Apache-2.0
"""Lanes: deadlines, bounds, and one domain that never delays another. Calls hang until let go."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest

from launcher.errors import Conflict, TimedOut
from launcher.hypervisor.lanes import Lane

BRIEF_S = 0.05


class Gate:
    """Work that hangs until it is let go, and tells who entered."""

    def __init__(self) -> None:
        self.entered: list[str] = []
        self._open = threading.Event()
        self._someone = threading.Semaphore(0)

    def work(self, name: str) -> str:
        self.entered.append(name)
        self._someone.release()
        assert self._open.wait(30)
        return name

    async def wait_entered(self, count: int) -> None:
        for _ in range(count):
            assert await asyncio.to_thread(self._someone.acquire, timeout=30)

    def open(self) -> None:
        self._open.set()


@pytest.fixture
async def gate() -> AsyncIterator[Gate]:
    made = Gate()
    yield made
    made.open()


async def hang(lane: Lane, gate: Gate, domain: str, *, timeout_s: float | None = 30) -> str:
    return await lane.run(lambda: gate.work(domain), what="hang", domain=domain, timeout_s=timeout_s)


async def test_carries_results_and_errors() -> None:
    lane = Lane(name="l", threads=1, per_domain=1)
    assert await lane.run(lambda: 7, what="w", timeout_s=5) == 7
    with pytest.raises(ZeroDivisionError):
        await lane.run(lambda: 1 // 0, what="w", timeout_s=5)
    with pytest.raises(TimeoutError, match="its own"):
        await lane.run(lambda: _raise(TimeoutError("its own")), what="w", timeout_s=5)
    assert await lane.run(threading.get_ident, what="w", timeout_s=5) != threading.get_ident()
    lane.close()


def _raise(error: Exception) -> None:
    raise error


async def test_no_more_threads_than_allowed(gate: Gate) -> None:
    lane = Lane(name="bounded", threads=2, per_domain=2)
    tasks = [asyncio.create_task(hang(lane, gate, f"d{number}")) for number in range(5)]
    await gate.wait_entered(2)
    assert gate.entered == ["d0", "d1"]
    names = [thread.name for thread in threading.enumerate() if thread.name.startswith("bounded-")]
    assert sorted(names) == ["bounded-1", "bounded-2"]
    gate.open()
    assert await asyncio.gather(*tasks) == ["d0", "d1", "d2", "d3", "d4"]
    lane.close()


async def test_idle_threads_serve_again() -> None:
    lane = Lane(name="again", threads=4, per_domain=2)
    for _ in range(20):
        await lane.run(lambda: None, what="w", timeout_s=5)
    assert sum(thread.name.startswith("again-") for thread in threading.enumerate()) == 1
    lane.close()


async def test_a_hung_domain_leaves_threads_to_others(gate: Gate) -> None:
    lane = Lane(name="l", threads=3, per_domain=2)
    hung = [asyncio.create_task(hang(lane, gate, "bad")) for _ in range(4)]
    await gate.wait_entered(2)
    assert await lane.run(lambda: "served", what="w", domain="good", timeout_s=5) == "served"
    assert gate.entered == ["bad", "bad"], "the third and fourth call wait their turn"
    gate.open()
    assert await asyncio.gather(*hung) == ["bad"] * 4
    lane.close()


async def test_overdue_calls_are_told_and_further_ones_refused_at_once(gate: Gate) -> None:
    lane = Lane(name="l", threads=4, per_domain=2)
    outcomes = await asyncio.gather(
        *(hang(lane, gate, "bad", timeout_s=BRIEF_S) for _ in range(2)), return_exceptions=True
    )
    assert [type(outcome) for outcome in outcomes] == [TimedOut, TimedOut]
    with pytest.raises(Conflict, match=r"2 earlier call\(s\) on domain bad have not returned"):
        await hang(lane, gate, "bad")
    assert await lane.run(lambda: 1, what="w", domain="good", timeout_s=5) == 1
    gate.open()
    async with asyncio.timeout(30):
        while True:  # the threads come back by themselves
            try:
                assert await lane.run(lambda: 2, what="w", domain="bad", timeout_s=5) == 2
            except Conflict:
                await asyncio.sleep(0)
            else:
                break
    lane.close()


async def test_a_call_that_gets_no_thread_times_out_and_never_runs(gate: Gate) -> None:
    lane = Lane(name="l", threads=1, per_domain=1)
    first = asyncio.create_task(hang(lane, gate, "a"))
    await gate.wait_entered(1)
    with pytest.raises(TimedOut, match="not begun within"):
        await hang(lane, gate, "b", timeout_s=BRIEF_S)
    gate.open()
    await first
    assert await lane.run(lambda: 3, what="w", timeout_s=5) == 3
    assert gate.entered == ["a"]
    lane.close()


async def test_a_lane_without_a_queue_refuses(gate: Gate) -> None:
    lane = Lane(name="migrate", threads=2, per_domain=1, waits=False)
    first = asyncio.create_task(hang(lane, gate, "a", timeout_s=None))
    await gate.wait_entered(1)
    with pytest.raises(Conflict, match=r"1 migrate call\(s\) of domain a are in progress"):
        await hang(lane, gate, "a", timeout_s=None)
    second = asyncio.create_task(hang(lane, gate, "b", timeout_s=None))
    await gate.wait_entered(1)
    with pytest.raises(Conflict, match="all 2 threads"):
        await hang(lane, gate, "c", timeout_s=None)
    gate.open()
    assert await first + await second == "ab"
    lane.close()


async def test_a_cancelled_caller_does_not_free_the_thread(gate: Gate) -> None:
    lane = Lane(name="l", threads=1, per_domain=1)
    first = asyncio.create_task(hang(lane, gate, "a"))
    await gate.wait_entered(1)
    first.cancel()
    waiting = asyncio.create_task(lane.run(lambda: 4, what="w", domain="b", timeout_s=30))
    await asyncio.sleep(0)
    assert not waiting.done()
    gate.open()
    assert await waiting == 4
    with pytest.raises(asyncio.CancelledError):
        await first
    lane.close()
