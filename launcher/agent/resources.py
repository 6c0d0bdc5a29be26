# SPDX-License-Identifier: Apache-2.0
"""What instances own on the node: each step is journalled, then made; released in reverse, then struck out.

A kill at any point leaves either a journalled step that may or may not have been made (making and releasing
are repeatable), or nothing.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

import msgspec

from launcher.agent.store import Store
from launcher.plan.devices.observed import with_observations
from launcher.plan.model import VMPlan
from launcher.plan.steps import AnyStep
from launcher.storage.executor import STORAGE_STEPS
from launcher.storage.observe import observe

STEP_TIMEOUT_S = 600.0
"""Bound of one step: fetching a large image is the longest."""
OBSERVE_TIMEOUT_S = 30.0


class Executor(Protocol):
    """Makes and releases steps of its kinds."""

    async def make(self, step: AnyStep) -> None: ...
    async def release(self, step: AnyStep) -> None: ...


class Network(Executor, Protocol):
    """The executor of networks, which has servers to look after."""

    def take_up(self, step: AnyStep) -> None:
        """Look after what an earlier agent made for an instance that lives."""

    async def close(self) -> None:
        """Look after nothing any more; what serves goes on."""


class Resources:
    """The journal with the executors behind it."""

    def __init__(self, store: Store, *, storage: Executor, network: Network) -> None:
        self._store = store
        self._storage = storage
        self._network = network

    async def make(self, plan: VMPlan) -> VMPlan:
        """Make the plan's steps in order and return the plan with what was found on the way.

        Raises what the executors raise, with what was made so far journalled.
        """
        for step in plan.steps:
            await self._store.journal_add(step)
            async with asyncio.timeout(STEP_TIMEOUT_S):
                await self._executor(step).make(step)
        async with asyncio.timeout(OBSERVE_TIMEOUT_S):
            seen = await asyncio.to_thread(observe, plan.devices)
        return msgspec.structs.replace(plan, devices=with_observations(plan.devices, seen))

    async def release(self, owner: str) -> None:
        """Undo everything that ``owner`` has in the journal."""
        for step in reversed(await self._store.journal_of(owner)):
            async with asyncio.timeout(STEP_TIMEOUT_S):
                await self._executor(step).release(step)
            await self._store.journal_remove(step)

    async def take_up(self, living: frozenset[str]) -> None:
        """Look after what earlier agents made for the instances ``living``."""
        for owner in sorted(living & await self._store.journal_owners()):
            for step in await self._store.journal_of(owner):
                self._network.take_up(step)

    async def close(self) -> None:
        """Look after nothing any more; what instances own stays."""
        await self._network.close()

    async def reap(self, living: frozenset[str]) -> tuple[str, ...]:
        """Release what belongs to nobody; returns the owners that were swept."""
        orphans = tuple(sorted(await self._store.journal_owners() - living))
        for owner in orphans:
            await self.release(owner)
        return orphans

    def _executor(self, step: AnyStep) -> Executor:
        return self._storage if isinstance(step, STORAGE_STEPS) else self._network
