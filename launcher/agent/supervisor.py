# SPDX-License-Identifier: Apache-2.0
"""Keeps the agent's tasks: starts them, logs one that dies of a bug, and cancels all at the end."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from launcher.host.logging import get

log = get(__name__)
T = TypeVar("T")

RESTART_MIN_S = 1.0
RESTART_MAX_S = 60.0


class Supervisor:
    """Owner of background tasks. One that raises is a bug: it is logged with its stack, the rest goes on."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[Any, Any, None], *, name: str) -> asyncio.Task[None]:
        """Run ``work`` until it ends or the agent stops."""

        async def once() -> None:
            await _guard(work, name)

        task = self._own(once(), name)
        task.add_done_callback(lambda _: work.close())  # One that was cancelled before it began.
        return task

    def keep(
        self,
        work: Callable[[], Coroutine[Any, Any, None]],
        *,
        name: str,
        died: Callable[[Exception], Coroutine[Any, Any, None]] | None = None,
    ) -> asyncio.Task[None]:
        """Run ``work``; if it dies of a bug, tell ``died`` and run it again after 1 s, 2 s … at most 60 s."""
        return self._own(_again(work, name, died), name)

    async def stop(self) -> None:
        """Cancel every task and wait for them."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _own(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        # A fresh context: a task outlives the request that happened to start it, and must not log as it.
        task = asyncio.create_task(work, name=name, context=contextvars.Context())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


async def unless(
    work: Coroutine[Any, Any, T], stop: Callable[[], bool], *, changed: asyncio.Event
) -> T | None:
    """What ``work`` returns, or raises what it does; None: it was cancelled, for ``stop`` holds.

    That is asked each time that ``changed`` is set, which is cleared before.
    """
    task = asyncio.create_task(work)
    try:
        while not task.done() and not stop():
            changed.clear()
            woken = asyncio.create_task(changed.wait())
            await asyncio.wait({task, woken}, return_when=asyncio.FIRST_COMPLETED)
            woken.cancel()
        return task.result() if task.done() else None
    finally:
        task.cancel()
        await asyncio.wait({task})


async def _guard(work: Coroutine[Any, Any, None], name: str) -> Exception | None:
    try:
        await work
    except Exception as error:
        log.exception("a task of the agent died", task=name)
        return error
    return None


async def _again(
    work: Callable[[], Coroutine[Any, Any, None]],
    name: str,
    died: Callable[[Exception], Coroutine[Any, Any, None]] | None,
) -> None:
    delay_s = RESTART_MIN_S
    while (error := await _guard(work(), name)) is not None:
        if died is not None:
            await _guard(died(error), name)
        await asyncio.sleep(delay_s)
        delay_s = min(delay_s * 2, RESTART_MAX_S)
