# SPDX-License-Identifier: Apache-2.0
"""What instances own on the node: each step is journalled, then made; released in reverse, then struck out.

A kill at any point leaves either a journalled step that may or may not have been made (making and releasing
are repeatable), or nothing.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

import msgspec

from launcher.agent.material import material_of
from launcher.agent.records import InstanceRecord
from launcher.agent.store import Store
from launcher.host.logging import get
from launcher.plan.devices.model import DevicesPlan, DiskPlan
from launcher.plan.devices.observed import Observed, with_observations
from launcher.plan.media.material import Material
from launcher.plan.model import VMPlan
from launcher.plan.steps import AnyStep, CreateImage, MakeDirectory
from launcher.storage.executor import STORAGE_STEPS
from launcher.storage.health import possible_size, take_room

log = get(__name__)

STEP_TIMEOUT_S = 3600.0
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

    async def mend(self, steps: tuple[AnyStep, ...]) -> tuple[str, ...]:
        """Make again what somebody removed of what was made; returns what is lost for good, in sentences."""

    async def close(self) -> None:
        """Look after nothing any more; what serves goes on."""


class Storage(Protocol):
    """Makes and releases the steps of storage. Content comes out of the material, never out of the step."""

    async def make(self, step: AnyStep, material: Material) -> AnyStep:
        """Bring ``step`` about; returns it with what was found on the way (the digest of an image)."""

    async def release(self, step: AnyStep, *, discard_state: bool = False) -> None: ...
    async def forget_state(self, directory: str) -> bool:
        """Remove the state that is kept in ``directory``; returns whether there was any."""

    async def observe(self, devices: DevicesPlan) -> dict[str, Observed]:
        """What the finished files show, by volume."""

    async def faults(self, steps: tuple[AnyStep, ...]) -> tuple[str, ...]:
        """What was made and has died since, in sentences."""

    async def sweep(self) -> None:
        """Remove what a killed agent left half made and nobody will go on with."""


class Resources:
    """The journal with the executors behind it."""

    def __init__(self, store: Store, *, storage: Storage, network: Network) -> None:
        self._store = store
        self._storage = storage
        self._network = network

    async def make(self, record: InstanceRecord) -> VMPlan:
        """Make the steps of the instance's plan in order; returns the plan with what was found on the way.

        Raises what the executors raise, with what was made so far journalled.
        """
        plan, material = record.plan, material_of(record)
        made = []
        for number, step in enumerate(plan.steps, 1):
            await self._store.journal_add(step)
            name = f"{type(step).__name__} {number}/{len(plan.steps)}"
            log.info("making", vmi=record.key, uid=record.uid, step=name)
            async with asyncio.timeout(STEP_TIMEOUT_S):
                made.append(await self._make(step, material))
        async with asyncio.timeout(OBSERVE_TIMEOUT_S):
            seen = await self._storage.observe(plan.devices)
        devices = with_observations(plan.devices, seen)
        return msgspec.structs.replace(plan, devices=devices, steps=tuple(made))

    async def extend(self, record: InstanceRecord, steps: tuple[AnyStep, ...]) -> tuple[AnyStep, ...]:
        """Make ``steps`` for an instance that runs already; returns them with what was found on the way."""
        material, made = material_of(record), []
        for step in steps:
            await self._store.journal_add(step)
            log.info("making", vmi=record.key, uid=record.uid, step=type(step).__name__)
            async with asyncio.timeout(STEP_TIMEOUT_S):
                made.append(await self._make(step, material))
        return tuple(made)

    async def completed(self, disk: DiskPlan) -> DiskPlan:
        """A disk whose files are there, with what they decide."""
        devices = DevicesPlan(disks=(disk,))
        async with asyncio.timeout(OBSERVE_TIMEOUT_S):
            seen = await self._storage.observe(devices)
        return with_observations(devices, seen).disks[0]

    async def drop_volume(self, owner: str, name: str) -> None:
        """Undo what was made for a volume of an instance that goes on."""
        journalled = await self._store.journal_of(owner)
        await self._undo(tuple(step for step in journalled if getattr(step, "volume", None) == name))

    async def drop(self, steps: tuple[AnyStep, ...]) -> None:
        """Undo some steps of an instance that goes on."""
        await self._undo(steps)

    async def release(self, owner: str, *, discard_state: bool = False) -> None:
        """Undo everything that ``owner`` has in the journal; its firmware variables and the state of its TPM
        are kept if they are to be, unless ``discard_state``."""
        await self._undo(await self._store.journal_of(owner), discard_state=discard_state)

    async def forget_state(self, directory: str) -> bool:
        """Remove the state that is kept in ``directory``; returns whether there was any."""
        async with asyncio.timeout(OBSERVE_TIMEOUT_S):
            return await self._storage.forget_state(directory)

    async def retire(self, owner: str) -> None:
        """Undo what a guest that ended for good needs no more: all but the directories: its log stays."""
        journalled = await self._store.journal_of(owner)
        await self._undo(tuple(step for step in journalled if not isinstance(step, MakeDirectory)))

    async def possible_size(self, path: str, step: CreateImage | None) -> tuple[int, bool]:
        """How large a claim is or may be, and whether that is less than is asked for, for want of room."""
        return await asyncio.to_thread(possible_size, path, step=step)

    async def take_room(self, disk: DiskPlan, size: int) -> None:
        """Take the blocks that the image of a guest that runs is to have."""
        if disk.source is not None:
            async with asyncio.timeout(STEP_TIMEOUT_S):
                await asyncio.to_thread(take_room, disk.name, disk.source.path, size)

    async def faults(self, plan: VMPlan) -> tuple[str, ...]:
        """What the guest uses and has died, in sentences."""
        return await self._storage.faults(plan.steps)

    async def mend_network(self, owner: str) -> tuple[str, ...]:
        """Make again what somebody removed of a running guest's network; returns in sentences what is lost
        for good."""
        async with asyncio.timeout(STEP_TIMEOUT_S):
            return await self._network.mend(await self._store.journal_of(owner))

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
        await self._storage.sweep()
        return orphans

    async def _make(self, step: AnyStep, material: Material) -> AnyStep:
        if isinstance(step, STORAGE_STEPS):
            return await self._storage.make(step, material)
        await self._network.make(step)
        return step

    async def _undo(self, steps: tuple[AnyStep, ...], *, discard_state: bool = False) -> None:
        for step in reversed(steps):
            async with asyncio.timeout(STEP_TIMEOUT_S):
                if isinstance(step, STORAGE_STEPS):
                    await self._storage.release(step, discard_state=discard_state)
                else:
                    await self._network.release(step)
            # The record of the journal is the step as it was planned: what was found later is not in it.
            await self._store.journal_remove(step)
