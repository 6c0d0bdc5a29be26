# SPDX-License-Identifier: Apache-2.0
"""A task that dies of a bug is told, run again, and never takes another with it."""

from __future__ import annotations

import asyncio
import logging

import pytest

from launcher.agent.supervisor import Supervisor, unless
from launcher.errors import NotFound


async def test_a_kept_task_is_run_again_after_a_bug(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    supervisor = Supervisor()
    told: list[str] = []
    runs = 0
    done = asyncio.Event()

    async def work() -> None:
        nonlocal runs
        runs += 1
        if runs == 1:
            raise ZeroDivisionError("first")
        done.set()

    async def died(error: Exception) -> None:
        told.append(str(error))

    supervisor.keep(work, name="fragile", died=died)
    await asyncio.wait_for(done.wait(), 10)
    assert told == ["first"]
    assert "a task of the agent died" in caplog.text
    await supervisor.stop()


async def test_a_bug_in_the_one_that_is_told_does_not_end_the_task() -> None:
    supervisor = Supervisor()
    done = asyncio.Event()
    runs = 0

    async def work() -> None:
        nonlocal runs
        runs += 1
        if runs == 1:
            raise ValueError("first")
        done.set()

    async def died(error: Exception) -> None:
        raise KeyError("second") from error

    supervisor.keep(work, name="fragile", died=died)
    await asyncio.wait_for(done.wait(), 10)
    await supervisor.stop()


async def test_stop_cancels_what_runs() -> None:
    supervisor = Supervisor()
    started = asyncio.Event()

    async def forever() -> None:
        started.set()
        await asyncio.Event().wait()

    task = supervisor.spawn(forever(), name="forever")
    await started.wait()
    await supervisor.stop()
    assert task.cancelled()


async def test_work_ends_early_when_nobody_wants_it_any_more() -> None:
    changed, begun, stop = asyncio.Event(), asyncio.Event(), False

    async def work() -> str:
        begun.set()
        await asyncio.Event().wait()
        return "never"

    running = asyncio.create_task(unless(work(), lambda: stop, changed=changed))
    await begun.wait()
    changed.set()
    await asyncio.sleep(0)
    assert not running.done(), "a change that stops nothing"
    stop = True
    changed.set()
    assert await running is None


async def test_work_that_ends_is_what_it_is() -> None:
    async def answer() -> int:
        return 42

    async def fail() -> int:
        raise NotFound("thing", "x")

    assert await unless(answer(), lambda: False, changed=asyncio.Event()) == 42
    with pytest.raises(NotFound):
        await unless(fail(), lambda: False, changed=asyncio.Event())
