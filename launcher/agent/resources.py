# SPDX-License-Identifier: Apache-2.0
"""What instances own on the node: each step is journalled, then made; released in reverse, then struck out.

A kill at any point leaves either a journalled step that may or may not have been made (making and releasing
are repeatable), or nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Protocol

from launcher.agent.store import Store
from launcher.plan.steps import AnyStep, CreateTap

STEP_TIMEOUT_S = 600.0
"""Bound of one step: fetching a large image is the longest."""


class Executor(Protocol):
    """Makes and releases steps of its kinds."""

    async def make(self, step: AnyStep) -> None: ...
    async def release(self, step: AnyStep) -> None: ...


class Resources:
    """The journal with the executors behind it."""

    def __init__(self, store: Store, *, storage: Executor, network: Executor) -> None:
        self._store = store
        self._storage = storage
        self._network = network

    async def make(self, steps: Iterable[AnyStep]) -> None:
        """Make the steps in order; raises what the executors raise, with what was made so far journalled."""
        for step in steps:
            await self._store.journal_add(step)
            async with asyncio.timeout(STEP_TIMEOUT_S):
                await self._executor(step).make(step)

    async def release(self, owner: str) -> None:
        """Undo everything that ``owner`` has in the journal."""
        for step in reversed(await self._store.journal_of(owner)):
            async with asyncio.timeout(STEP_TIMEOUT_S):
                await self._executor(step).release(step)
            await self._store.journal_remove(step)

    async def reap(self, living: frozenset[str]) -> tuple[str, ...]:
        """Release what belongs to nobody; returns the owners that were swept."""
        orphans = tuple(sorted(await self._store.journal_owners() - living))
        for owner in orphans:
            await self.release(owner)
        return orphans

    def _executor(self, step: AnyStep) -> Executor:
        return self._network if isinstance(step, CreateTap) else self._storage
