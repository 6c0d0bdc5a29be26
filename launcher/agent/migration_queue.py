# SPDX-License-Identifier: Apache-2.0
"""Who of the waiting migrations goes next: a limit at a time, by priority, then by age."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

PRIORITIES = ("system-critical", "user-triggered", "system-maintenance")
"""The API's values of ``spec.priority``, most urgent first."""
DEFAULT_PRIORITY = "user-triggered"
"""Of a migration without one: somebody asked for it here."""


def rank(priority: str) -> int:
    """Where a priority stands; one that is not known waits behind all that are."""
    known = priority or DEFAULT_PRIORITY
    return PRIORITIES.index(known) if known in PRIORITIES else len(PRIORITIES)


class Slots:
    """``limit`` places; those that wait get them by rank, and in the order they came."""

    def __init__(self, limit: int) -> None:
        self._free = limit  # Below 0 while some took a place out of turn.
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._came = 0

    @property
    def waiting(self) -> int:
        """How many wait."""
        return sum(1 for _, _, turn in self._waiting if not turn.done())

    @property
    def full(self) -> bool:
        """Whoever comes now has to wait."""
        return self._free <= 0 or bool(self.waiting)

    @asynccontextmanager
    async def place(self, priority: str, *, at_once: asyncio.Event) -> AsyncIterator[None]:
        """Wait for a place, or for ``at_once`` to be set, and hold it for the body."""
        await self._take(rank(priority), at_once)
        try:
            yield
        finally:
            self._free += 1
            self._next()

    async def _take(self, place: int, at_once: asyncio.Event) -> None:
        if at_once.is_set() or not self.full:
            self._free -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._came += 1
        heapq.heappush(self._waiting, (place, self._came, turn))
        hurry = asyncio.ensure_future(at_once.wait())
        either: set[asyncio.Future[Any]] = {turn, hurry}
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            if turn.done():
                self._free += 1
                self._next()
            raise
        finally:
            hurry.cancel()
            if not turn.done():
                turn.cancel()
        if turn.cancelled():
            self._free -= 1

    def _next(self) -> None:
        while self._free > 0 and self._waiting:
            _, _, turn = heapq.heappop(self._waiting)
            if not turn.done():
                self._free -= 1
                turn.set_result(None)
