# SPDX-License-Identifier: Apache-2.0
"""Runs the probes of instances, a task for each, and notices what they amount to. What follows is decided
elsewhere: by ``conditions`` (readiness) and ``lifecycle`` (liveness).

A probe rests while its guest is paused, migrates or is on its way in: silence says nothing about it then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final

from msgspec.structs import replace

from launcher.agent import lifecycle
from launcher.agent.instances import Instances
from launcher.agent.machine import Machine, Services
from launcher.agent.records import InstanceRecord, Notice
from launcher.agent.supervisor import Supervisor
from launcher.guest.agent import GuestAgent
from launcher.guest.probe import Look, Tally, Target, look
from launcher.host.logging import get
from launcher.hypervisor.port import DomainState
from launcher.spec.model import Probe, VirtualMachineInstance

log = get(__name__)

BOOT_S: Final = 10
"""Added to initialDelaySeconds, as KubeVirt does: a guest has to boot first."""
SEARCH_S: Final = 2.0
"""Between two searches for guests that are not probed yet."""
PAUSE_PINGS: Final = "kubevirt.io/pause-guest-agent-probes"
"""``true``: pings of the agent count as answered and are not sent."""

READINESS: Final = "readiness"
LIVENESS: Final = "liveness"


class Probes:
    """The probes of one node; ``run`` is its task."""

    def __init__(self, services: Services, instances: Instances, supervisor: Supervisor) -> None:
        self._services = services
        self._instances = instances
        self._supervisor = supervisor
        self._tasks: dict[tuple[str, str], asyncio.Task[None]] = {}

    async def run(self) -> None:
        """See to it that every guest with probes is probed, for ever."""
        while True:
            self._tasks = {key: task for key, task in self._tasks.items() if not task.done()}
            for machine in self._instances.machines():
                for kind, probe in _probes(machine.record) if _runs(machine) else ():
                    key = (machine.record.uid, kind)
                    if key not in self._tasks:
                        name = f"{kind} probe of {machine.record.key}"
                        self._tasks[key] = self._supervisor.spawn(
                            self._probe(machine, kind, probe), name=name
                        )
            await asyncio.sleep(SEARCH_S)

    async def _probe(self, machine: Machine, kind: str, probe: Probe) -> None:
        if machine.record.migration_state is None:
            await asyncio.sleep((probe.initial_delay_seconds or 0) + BOOT_S)
        tally = Tally(machine.record.notice.ready if kind == READINESS else True)
        while _runs(machine):
            seen = await self._look(machine, probe)
            if seen is not None:
                before, tally = (
                    tally,
                    tally.after(
                        seen.passed,
                        successes=probe.success_threshold or 1,
                        failures=probe.failure_threshold or 3,
                    ),
                )
                if tally.good is not None and tally.good is not before.good:
                    words = "succeeds" if tally.good else f"fails: {seen.why}"
                    log.info(f"{kind} probe {words}", vmi=machine.record.key, uid=machine.record.uid)
                    _notice(machine, kind, good=tally.good, why=seen.why)
            await asyncio.sleep(probe.period_seconds or 10)

    async def _look(self, machine: Machine, probe: Probe) -> Look | None:
        """One look; None when it says nothing, because the guest did not run all the while."""
        if _rests(machine):
            return None
        if _pings_pause(machine, probe):
            return Look(True)
        seen = await look(probe, self._target(machine))
        return None if _rests(machine) or not _runs(machine) else seen

    def _target(self, machine: Machine) -> Target:
        record = machine.record
        shown = self._services.hub.get(record.key)
        return Target(
            agent=GuestAgent(self._services.hypervisor, record.plan.identity.uuid),
            address=_address(shown),
            ports={
                port.name: port.port
                for interface in record.defaulted.spec.domain.devices.interfaces
                for port in interface.ports
                if port.name and port.port
            },
        )


def _probes(record: InstanceRecord) -> Iterator[tuple[str, Probe]]:
    spec = record.defaulted.spec
    if spec.readiness_probe is not None:
        yield READINESS, spec.readiness_probe
    if spec.liveness_probe is not None:
        yield LIVENESS, spec.liveness_probe


def _runs(machine: Machine) -> bool:
    record = machine.record
    return (
        not machine.gone
        and record.phase == "Running"
        and record.desired == "running"
        and not record.incoming
        and lifecycle.alive(machine.observed)
    )


def _rests(machine: Machine) -> bool:
    record, observed = machine.record, machine.observed
    waits = bool(record.outgoing) or record.user_paused
    return waits or observed is None or observed.state is DomainState.PAUSED


def _pings_pause(machine: Machine, probe: Probe) -> bool:
    metadata = machine.record.manifest.metadata
    return (
        probe.guest_agent_ping is not None
        and metadata is not None
        and metadata.annotations.get(PAUSE_PINGS) == "true"
    )


def _address(shown: VirtualMachineInstance | None) -> str:
    """The first address that is shown of the guest, of an interface of its manifest."""
    interfaces = shown.status.interfaces if shown is not None and shown.status is not None else ()
    return next((nic.ip_address for nic in interfaces if nic.name and nic.ip_address), "")


def _notice(machine: Machine, kind: str, *, good: bool, why: str) -> None:
    def noticed(notice: Notice) -> Notice:
        if kind == READINESS:
            return replace(notice, ready=good, unready_why="" if good else why)
        return notice if good else replace(notice, dead_why=why or "the guest does not answer")

    machine.notice(noticed)
