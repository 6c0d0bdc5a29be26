# SPDX-License-Identifier: Apache-2.0
"""Access credentials by guest agent: hands them over when the agent connects, and tries again what failed.

What came of it goes into the instance's notice; ``conditions`` makes AccessCredentialsSynchronized of it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from launcher.agent import lifecycle
from launcher.agent.instances import Instances
from launcher.agent.machine import Machine, Services
from launcher.agent.material import material_of
from launcher.agent.records import Delivery, Notice
from launcher.agent.supervisor import Supervisor
from launcher.errors import LauncherError
from launcher.guest.agent import GuestAgent
from launcher.guest.logins import Logins
from launcher.host.logging import get
from launcher.hypervisor.port import DomainState
from launcher.plan.media.credentials import by_agent, logins

log = get(__name__)

SEARCH_S: Final = 1.0
"""Between two looks for guests whose agent waits for credentials."""
RETRY_MIN_S: Final = 10.0
RETRY_MAX_S: Final = 300.0
"""As often as KubeVirt hands them over again."""


@dataclass(slots=True)
class _Turn:
    """Where one guest is: what was handed to which connection of its agent, and when to try again."""

    done: bool = False
    failures: int = 0
    not_before: float = 0.0
    task: asyncio.Task[None] | None = None


class Access:
    """The credentials of one node's guests; ``run`` is its task."""

    def __init__(self, services: Services, instances: Instances, supervisor: Supervisor) -> None:
        self._services = services
        self._instances = instances
        self._supervisor = supervisor
        self._turns: dict[str, _Turn] = {}

    def agent_changed(self, machine: Machine) -> None:
        """The guest's agent came or went: who comes gets everything anew."""
        turn = self._turns.get(machine.record.uid)
        if turn is not None:
            turn.done, turn.failures, turn.not_before = False, 0, 0.0

    async def run(self) -> None:
        """See to it that every guest has its credentials, for ever."""
        while True:
            waiting = [machine for machine in self._instances.machines() if _waits(machine)]
            living = {machine.record.uid for machine in waiting}
            self._turns = {uid: turn for uid, turn in self._turns.items() if uid in living}
            for machine in waiting:
                turn = self._turns.setdefault(machine.record.uid, _Turn())
                busy = turn.task is not None and not turn.task.done()
                if not turn.done and not busy and self._services.clock.monotonic() >= turn.not_before:
                    turn.done = True  # until the agent reconnects, even while it is being told, or it fails
                    work = self._deliver(machine, turn)
                    turn.task = self._supervisor.spawn(work, name=f"credentials of {machine.record.key}")
            await asyncio.sleep(SEARCH_S)

    async def _deliver(self, machine: Machine, turn: _Turn) -> None:
        record = machine.record
        try:
            guest = Logins(GuestAgent(self._services.hypervisor, record.plan.identity.uuid))
            for login in logins(material_of(record)):
                if login.keys is not None:
                    await guest.set_keys(login.user, login.keys)
                if login.password is not None:
                    await guest.set_password(login.user, login.password)
        except (LauncherError, TimeoutError) as error:
            delay_s = min(RETRY_MIN_S * 2.0**turn.failures, RETRY_MAX_S)
            turn.done, turn.failures = False, turn.failures + 1
            turn.not_before = self._services.clock.monotonic() + delay_s
            why = str(error) or "the guest agent did not answer in time"
            log.warning(f"credentials: {why}", vmi=record.key, uid=record.uid, retry_s=delay_s)
            _note(machine, Delivery(done=False, why=why))
        else:
            turn.failures = 0
            log.info("the guest has its credentials", vmi=record.key, uid=record.uid)
            _note(machine, Delivery(done=True))


def _waits(machine: Machine) -> bool:
    """Whether credentials can be handed over now."""
    record, observed = machine.record, machine.observed
    return (
        bool(by_agent(record.defaulted))
        and not machine.gone
        and record.phase == "Running"
        and record.desired == "running"
        and not record.incoming
        and not record.outgoing
        and record.agent_connected
        and lifecycle.alive(observed)
        and observed is not None
        and observed.state is not DomainState.PAUSED
    )


def _note(machine: Machine, delivery: Delivery) -> None:
    def noticed(notice: Notice) -> Notice:
        return replace(notice, credentials=delivery)

    machine.notice(noticed)
