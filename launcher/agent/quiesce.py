# SPDX-License-Identifier: Apache-2.0
"""Freezes a guest's file systems by its agent, and sees to it that they thaw, whatever becomes of us.

That they are frozen is written down before they are, with the time at which they thaw at the latest; an agent
that restarts reads that.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import msgspec

from launcher.agent import lifecycle
from launcher.agent.instances import Instances
from launcher.agent.machine import Machine, Services
from launcher.agent.records import FINAL, Frozen, InstanceRecord, Moment
from launcher.agent.supervisor import Supervisor
from launcher.errors import (
    Conflict,
    GuestAgentError,
    InvalidRequest,
    LauncherError,
    NotFound,
    TimedOut,
    Violation,
    WrongPhase,
)
from launcher.guest.agent import GuestAgent
from launcher.host.boot import boot_id, boot_seconds
from launcher.host.logging import get
from launcher.hypervisor.port import DomainState

log = get(__name__)

ASK_TIMEOUT_S: Final = 5.0
FREEZE_TIMEOUT_S: Final = 20.0
"""A guest flushes what it has not written yet; KubeVirt's clients wait 60 s for all of it."""
COPY_THAW_S: Final = 60.0
"""A copy begins in a second or so; if nobody thawed the guest by then, its agent did not survive it."""
MAX_THAW_S: Final = 24 * 3600.0
LOOK_S: Final = 1.0
RETRY_S: Final = 5.0

ONLINE: Final = "Online"
GUEST_AGENT: Final = "GuestAgent"
NO_GUEST_AGENT: Final = "NoGuestAgent"
QUIESCE_FAILED: Final = "QuiesceFailed"
"""Indications of a snapshot, as KubeVirt names them."""

_BUSY = (GuestAgentError, TimedOut, Conflict)


class Quiesce:
    """The freezes of one node; ``run`` is its task."""

    def __init__(self, services: Services, instances: Instances, supervisor: Supervisor) -> None:
        self._services = services
        self._instances = instances
        self._supervisor = supervisor
        self._thaws: dict[str, asyncio.Task[None]] = {}

    async def freeze(self, namespace: str, name: str, *, unfreeze_after_s: float) -> None:
        """Freeze all file systems; what is frozen already is a success and keeps its time.

        Raises:
            InvalidRequest: a negative time, or more than a day.
            WrongPhase: not running, or paused. Conflict: migrating, or a job of the domain is under way.
            GuestAgentError: it does not answer or says no; nothing is frozen then.
        """
        if not 0 <= unfreeze_after_s <= MAX_THAW_S:
            message = f"accepted are 0 (never) to {MAX_THAW_S:.0f} seconds"
            finding = Violation(field="unfreeze_timeout_seconds", type="FieldValueInvalid", message=message)
            raise InvalidRequest([finding])
        machine = self._instances.find(namespace, name)
        require_running(machine)
        agent = self._agent(machine)
        # Asked before anything is written down: without an agent nothing is frozen or can be thawed.
        if await agent.frozen(timeout_s=ASK_TIMEOUT_S):
            return
        await self._freeze(machine, agent, thaw_after_s=unfreeze_after_s)

    async def unfreeze(self, namespace: str, name: str) -> None:
        """Thaw the file systems; none that is frozen is a success.

        Raises:
            WrongPhase: not running, or paused. GuestAgentError: it does not answer; it is asked again later
            if the time for it is known.
        """
        machine = self._instances.find(namespace, name)
        require_running(machine, busy=False)
        await self._thaw(machine)

    @asynccontextmanager
    async def quiet(self, machine: Machine) -> AsyncIterator[tuple[str, ...]]:
        """Hold the guest frozen for the block, if its agent can; yields how quiet it is (indications).

        A guest that somebody froze already is left as it is.
        """
        agent = self._agent(machine)
        try:
            if machine.observed is None or machine.observed.state is DomainState.PAUSED:
                raise GuestAgentError("a paused guest does not answer")
            frozen = await agent.frozen(timeout_s=ASK_TIMEOUT_S)
        except _BUSY:
            yield (ONLINE, NO_GUEST_AGENT)
            return
        if frozen:
            yield (ONLINE, GUEST_AGENT)
            return
        try:
            await self._freeze(machine, agent, thaw_after_s=COPY_THAW_S, copying=True)
        except _BUSY as error:
            log.warning(f"the guest was not frozen: {error}", vmi=machine.record.key)
            yield (ONLINE, GUEST_AGENT, QUIESCE_FAILED)
            return
        try:
            yield (ONLINE, GUEST_AGENT)
        finally:
            await self._thaw_soon(machine)

    async def release(self, machine: Machine) -> None:
        """Thaw a guest that a copy froze which is not to be, because its agent did not survive that."""
        if machine.record.frozen is not None and machine.record.frozen.copying:
            await self._thaw_soon(machine)

    async def run(self) -> None:
        """Thaw what is due, for ever."""
        while True:
            self._thaws = {uid: task for uid, task in self._thaws.items() if not task.done()}
            for machine in self._instances.machines():
                frozen, uid = machine.record.frozen, machine.record.uid
                if frozen is not None and uid not in self._thaws and (_due(frozen) or _ended(machine)):
                    name = f"thaw of {machine.record.key}"
                    self._thaws[uid] = self._supervisor.spawn(self._thaw_soon(machine, RETRY_S), name=name)
            await asyncio.sleep(LOOK_S)

    async def _freeze(
        self, machine: Machine, agent: GuestAgent, *, thaw_after_s: float, copying: bool = False
    ) -> None:
        frozen = Frozen(since=_now(), thaw_after_s=thaw_after_s, copying=copying)
        await machine.update(lambda record: _with_frozen(record, frozen), wake=False)
        try:
            await agent.freeze(timeout_s=FREEZE_TIMEOUT_S)
        except LauncherError:
            # It may be frozen all the same: an answer can get lost.
            await self._thaw_soon(machine)
            raise
        log.info("froze the guest's file systems", vmi=machine.record.key, thaw_after_s=thaw_after_s)

    async def _thaw(self, machine: Machine) -> None:
        agent = self._agent(machine)
        try:
            frozen = await agent.frozen(timeout_s=ASK_TIMEOUT_S)
        except GuestAgentError:
            frozen = True  # perhaps: thawing twice does less harm than not at all
        if frozen:
            await agent.thaw(timeout_s=FREEZE_TIMEOUT_S)
            log.info("thawed the guest's file systems", vmi=machine.record.key)
        await machine.update(lambda record: msgspec.structs.replace(record, frozen=None), wake=False)

    async def _thaw_soon(self, machine: Machine, pause_s: float = 0.0) -> None:
        """Thaw; what fails is tried again by ``run``."""
        try:
            if _ended(machine):
                await machine.update(lambda record: msgspec.structs.replace(record, frozen=None), wake=False)
            else:
                await self._thaw(machine)
        except NotFound:
            return  # the instance is gone
        except LauncherError as error:
            log.warning(f"cannot thaw the guest's file systems: {error}", vmi=machine.record.key)
            await self._make_due(machine)
            await asyncio.sleep(pause_s)

    async def _make_due(self, machine: Machine) -> None:
        """A copy is over: nobody waits for the rest of the time that it was given."""
        frozen = machine.record.frozen
        if frozen is not None and not _due(frozen):
            due = msgspec.structs.replace(frozen, thaw_after_s=0.001)
            await machine.update(lambda record: msgspec.structs.replace(record, frozen=due), wake=False)

    def _agent(self, machine: Machine) -> GuestAgent:
        return GuestAgent(self._services.hypervisor, machine.record.plan.identity.uuid)


def require_running(machine: Machine, *, busy: bool = True) -> None:
    """Check that the guest runs and is not on its way to another node.

    Raises:
        WrongPhase: it does not run, is paused, or goes away. Conflict: it migrates or, with ``busy``, does
        something that excludes others.
    """
    record = machine.record
    if record.phase != "Running" or record.desired == "deleted" or not lifecycle.alive(machine.observed):
        state = "being deleted" if record.desired == "deleted" else record.phase
        raise WrongPhase(f"{record.key} is {state}; it must be Running")
    if record.outgoing:
        raise Conflict(f"{record.key} migrates", hint="wait for the migration, or cancel it")
    if busy and record.job is not None:
        raise Conflict(f"{record.key} is busy with its {record.job}", hint="wait for it")


def _with_frozen(record: InstanceRecord, frozen: Frozen) -> InstanceRecord:
    if record.outgoing:
        raise Conflict(f"{record.key} migrates", hint="wait for the migration, or cancel it")
    return msgspec.structs.replace(record, frozen=frozen)


def _ended(machine: Machine) -> bool:
    record, frozen = machine.record, machine.record.frozen
    other_boot = frozen is not None and frozen.since.boot_id != boot_id()
    gone = machine.known and not lifecycle.alive(machine.observed)
    return record.phase in FINAL or bool(record.moved_to) or other_boot or gone


def _due(frozen: Frozen) -> bool:
    if frozen.since.boot_id != boot_id():
        return True
    return 0 < frozen.thaw_after_s <= boot_seconds() - frozen.since.seconds


def _now() -> Moment:
    return Moment(boot_id=boot_id(), seconds=boot_seconds())
