# SPDX-License-Identifier: Apache-2.0
"""Looks, again and again, for what the status of running guests' interfaces tells, and hands it to each
guest's machine. Cheap: for all guests one read of the neighbour tables and a file each; guests that have an
agent are asked at once, then ever less often, each by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from launcher.agent import lifecycle
from launcher.agent.instances import Instances
from launcher.agent.machine import Machine, Services
from launcher.agent.records import InstanceRecord
from launcher.agent.sighting import Sighting
from launcher.agent.supervisor import Supervisor
from launcher.errors import GuestAgentError, LauncherError
from launcher.guest.agent import GuestAgent, GuestInterface
from launcher.host.logging import get
from launcher.hypervisor.port import DomainState
from launcher.network.leases import Lease, leases
from launcher.network.neighbours import Neighbour, neighbours, present
from launcher.plan.steps import ServeAddresses

log = get(__name__)

LOOK_S: Final = 5.0
ASK_MIN_S: Final = 10.0
ASK_MAX_S: Final = 120.0
"""Between two questions to a guest's agent: doubling from the one to the other, as KubeVirt does."""
ASK_TIMEOUT_S: Final = 5.0
AT_ONCE: Final = 4
"""Guests that are asked at the same time."""


@dataclass(slots=True)
class _Questions:
    """What the agent of one guest told, and when it is asked again."""

    told: tuple[GuestInterface, ...] | None = None
    wait_s: float = ASK_MIN_S
    next_at: float = 0.0
    task: asyncio.Task[None] | None = None


@dataclass(frozen=True, slots=True)
class _Outside:
    """What the node knows."""

    neighbours: tuple[Neighbour, ...]
    leases: dict[str, tuple[Lease, ...]]


class Lookout:
    """The looks of one node; ``run`` is its task."""

    def __init__(self, services: Services, instances: Instances, supervisor: Supervisor) -> None:
        self._services = services
        self._instances = instances
        self._supervisor = supervisor
        self._questions: dict[str, _Questions] = {}
        self._asking = asyncio.Semaphore(AT_ONCE)
        self._silent = ""

    async def run(self) -> None:
        """For ever."""
        while True:
            await self.look()
            await asyncio.sleep(LOOK_S)

    async def look(self) -> None:
        """Once, at all guests that run here."""
        machines = [machine for machine in self._instances.machines() if _runs(machine)]
        uids = {machine.record.uid for machine in machines}
        self._questions = {uid: asked for uid, asked in self._questions.items() if uid in uids}
        if not machines:
            return
        outside = await self._outside([machine.record for machine in machines])
        for machine in machines:
            macs = _macs(machine.record)
            await machine.saw(
                Sighting(
                    guest=self._ask(machine),
                    leases=outside.leases.get(machine.record.uid, ()),
                    neighbours={
                        mac: present(one for one in outside.neighbours if one.mac == mac) for mac in macs
                    },
                )
            )

    async def _outside(self, records: Sequence[InstanceRecord]) -> _Outside:
        try:
            found = await asyncio.to_thread(_look_outside, records)
        except LauncherError as error:
            if str(error) != self._silent:
                log.warning(f"addresses of guests are not known: {error}")
                self._silent = str(error)
            return _Outside((), {})
        self._silent = ""
        return found

    def _ask(self, machine: Machine) -> tuple[GuestInterface, ...] | None:
        """What the guest's agent told last; it is asked again when it is time."""
        asked = self._questions.setdefault(machine.record.uid, _Questions())
        if not machine.record.agent_connected:
            if asked.task is not None:
                asked.task.cancel()
            self._questions[machine.record.uid] = _Questions()
            return None
        if not _rests(machine) and self._services.clock.monotonic() >= asked.next_at and asked.task is None:
            name = f"interfaces of {machine.record.key}"
            asked.task = self._supervisor.spawn(self._question(machine, asked), name=name)
        return asked.told

    async def _question(self, machine: Machine, asked: _Questions) -> None:
        agent = GuestAgent(self._services.hypervisor, machine.record.plan.identity.uuid)
        try:
            async with self._asking:
                asked.told = await agent.interfaces(timeout_s=ASK_TIMEOUT_S)
        except GuestAgentError:
            asked.told = None
        except LauncherError as error:
            log.debug(f"cannot ask the guest's agent: {error}", vmi=machine.record.key)
        finally:
            asked.task = None
            asked.next_at = self._services.clock.monotonic() + asked.wait_s
            asked.wait_s = min(2 * asked.wait_s, ASK_MAX_S)


def _look_outside(records: Sequence[InstanceRecord]) -> _Outside:
    macs = frozenset(mac for record in records for mac in _macs(record))
    return _Outside(
        neighbours(macs),
        {
            record.uid: tuple(
                lease
                for step in record.plan.steps
                if isinstance(step, ServeAddresses)
                for lease in leases(step)
            )
            for record in records
        },
    )


def _macs(record: InstanceRecord) -> frozenset[str]:
    """Of interfaces that may be on the node's own networks."""
    inside = {
        nic.name for nic in record.defaulted.spec.domain.devices.interfaces if nic.masquerade is not None
    }
    nics = record.plan.devices.interfaces
    return frozenset((nic.mac or "").lower() for nic in nics if nic.name not in inside and nic.mac)


def _runs(machine: Machine) -> bool:
    return not machine.gone and not machine.record.incoming and lifecycle.alive(machine.observed)


def _rests(machine: Machine) -> bool:
    """A guest that stands still answers nothing."""
    observed = machine.observed
    return bool(machine.record.outgoing) or observed is None or observed.state is DomainState.PAUSED
