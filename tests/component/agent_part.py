# SPDX-License-Identifier: Apache-2.0
"""The part of an agent that migrates, with a real store and real connections to peers, without libvirt."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self, cast

import msgspec

from launcher.agent.draft import Site, draft
from launcher.agent.hostfacts import HostFacts
from launcher.agent.in_place_run import InPlaceEntry
from launcher.agent.instances import Instances
from launcher.agent.ledger import Limits
from launcher.agent.machine import Machine, Services
from launcher.agent.migration_status import OutgoingEntry
from launcher.agent.migrations import Migrations
from launcher.agent.port import Companions
from launcher.agent.records import InstanceRecord
from launcher.agent.resources import Resources
from launcher.agent.store import Store
from launcher.agent.supervisor import Supervisor
from launcher.agent.watch import Hub
from launcher.errors import HypervisorUnavailable
from launcher.host.clock import SystemClock
from launcher.host.config import Config
from launcher.hypervisor.port import (
    DomainRecord,
    DomainState,
    Event,
    Hypervisor,
    JobCompletedEvent,
    JobStats,
)
from launcher.migration.attempt import AttemptRecord, Cause, Outgoing, Phase, Transition
from launcher.migration.options import Options, Workload
from launcher.migration.progress import MigrationReport
from launcher.plan.facts import NodeFacts, assumed_facts
from launcher.plan.settings import PlanSettings
from launcher.spec.codec import dec_hook, enc_hook
from launcher.spec.defaults import DefaultsSettings
from launcher.spec.load import load_vmi
from launcher.spec.model import (
    ObjectMeta,
    VirtualMachineInstance,
    VirtualMachineInstanceMigration,
    VirtualMachineInstanceMigrationSpec,
)

UID = "6ba7b810-9dad-41d1-80b4-00c04fd430c8"
NAMESPACE = "lab"
MANIFEST = """
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {{name: {name}, namespace: {namespace}, uid: {uid}}}
spec:
  domain:
    memory: {{guest: 128Mi}}
    devices: {{autoattachPodInterface: false}}
"""
KIND = "outgoing"
WITHIN = "in-place"


class StandInFacts:
    """The facts of a node. Who asks for them waits until ``given`` is set; ``asked`` tells that one does."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.given = asyncio.Event()
        self.given.set()

    async def get(self, vmi: VirtualMachineInstance | None = None) -> NodeFacts:
        self.asked.set()
        await self.given.wait()
        return assumed_facts()


class StandInHypervisor:
    """A libvirt that has at most one guest, with a migration away from here that runs until it is aborted."""

    def __init__(self, *, connected: bool = True, runs: bool = False) -> None:
        self.connected = connected
        self.runs = runs
        self.looked_at = asyncio.Event()
        self.aborted = asyncio.Event()
        self._listeners: list[Callable[[Event], None]] = []

    def subscribe(self, listener: Callable[[Event], None]) -> Callable[[], None]:
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    async def domain(self, uuid: str) -> DomainRecord:
        if not self.runs:
            raise HypervisorUnavailable("there is no libvirt here")
        return DomainRecord(
            uuid=uuid, name="lab_web", state=DomainState.RUNNING, reason="booted", persistent=True
        )

    async def domain_xml(self, uuid: str, *, inactive: bool = False, migratable: bool = False) -> str:
        raise HypervisorUnavailable("there is no libvirt here")

    async def job_stats(self, uuid: str) -> JobStats:
        self.looked_at.set()
        return JobStats(kind="none" if self.aborted.is_set() else "unbounded", operation="migration-out")

    async def completed_job_stats(self, uuid: str) -> JobStats:
        return JobStats(kind="none")

    async def set_max_downtime(self, uuid: str, milliseconds: int) -> None:
        """As it is told."""

    async def abort_job(self, uuid: str) -> None:
        self.aborted.set()
        for listener in tuple(self._listeners):
            listener(JobCompletedEvent(uuid=uuid, stats=JobStats(kind="cancelled")))


class SlowStore(Store):
    """A store that is busy with what ``slow`` or ``slow_with`` picks until ``go`` is set."""

    slow: Callable[[bytes], bool]
    slow_with: Callable[[InstanceRecord], bool]
    begun: asyncio.Event
    go: asyncio.Event
    turn: asyncio.Lock
    waiting: int

    def ready(self) -> Self:
        """Nothing is slow yet."""
        self.slow, self.slow_with = (lambda _text: False), (lambda _record: False)
        self.begun, self.go, self.turn, self.waiting = asyncio.Event(), asyncio.Event(), asyncio.Lock(), 0
        return self

    async def put(self, kind: str, key: str, record: bytes) -> None:
        self.waiting += 1
        async with self.turn:
            if self.slow(record):
                self.begun.set()
                await self.go.wait()
            await super().put(kind, key, record)
        self.waiting -= 1

    async def save_instance(self, record: InstanceRecord) -> None:
        if self.slow_with(record):
            self.begun.set()
            await self.go.wait()
        await super().save_instance(record)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentPart:
    """One process of the agent."""

    store: SlowStore
    supervisor: Supervisor
    instances: Instances
    migrations: Migrations
    hypervisor: StandInHypervisor
    facts: StandInFacts

    @property
    def machine(self) -> Machine:
        """That of the only instance."""
        (machine,) = self.instances.machines()
        return machine

    async def stop(self) -> None:
        """The process ends; what is on disk stays."""
        await self.migrations.close()
        await self.supervisor.stop()
        await self.store.close()

    async def stored(self) -> dict[str, OutgoingEntry]:
        """The migrations away, as the next process would find them, by their objects' names."""
        texts = (await self.store.documents(KIND)).values()
        found = (msgspec.json.decode(text, type=OutgoingEntry, dec_hook=dec_hook) for text in texts)
        return {entry.key.partition("/")[2]: entry for entry in found}

    async def until(self, reached: Callable[[dict[str, OutgoingEntry]], object]) -> dict[str, OutgoingEntry]:
        """Wait until what is stored is so."""
        async with asyncio.timeout(20):
            while not reached(found := await self.stored()):
                await asyncio.sleep(0.005)
        return found


async def carried(name: str) -> None:
    """Wait until nobody carries the migration ``name`` on any more."""
    async with asyncio.timeout(20):
        while any(task.get_name() == f"migration {NAMESPACE}/{name}" for task in asyncio.all_tasks()):
            await asyncio.sleep(0.005)


def reminders() -> list[str]:
    """The tasks that tell targets what they have not heard yet."""
    return [task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("reminder")]


@dataclass(slots=True, kw_only=True)
class Disk:
    """What outlives the agent's processes, in ``folder``."""

    folder: Path
    running: list[AgentPart] = field(default_factory=list)

    async def write(
        self,
        records: InstanceRecord | Iterable[InstanceRecord],
        entries: Iterable[OutgoingEntry | InPlaceEntry],
    ) -> None:
        """An older process left instances and migrations."""
        store = await Store.open(self.folder / "launcher.db")
        for record in [records] if isinstance(records, InstanceRecord) else records:
            await store.save_instance(record)
        for entry in entries:
            kind = WITHIN if isinstance(entry, InPlaceEntry) else KIND
            await store.put(kind, entry.attempt.attempt, msgspec.json.encode(entry, enc_hook=enc_hook))
        await store.close()

    async def start(
        self, hypervisor: StandInHypervisor | None = None, facts: StandInFacts | None = None
    ) -> AgentPart:
        """The next process; the one before it ends first."""
        await self.stop()
        hypervisor = hypervisor or StandInHypervisor(connected=False)
        facts = facts or StandInFacts()
        store = await SlowStore.open(self.folder / "launcher.db")
        assert isinstance(store, SlowStore)
        config = Config(node="a", state_dir=str(self.folder), run_dir=str(self.folder / "run"))
        unused = None
        services = Services(
            node="a",
            hypervisor=cast("Hypervisor", hypervisor),
            store=store,
            resources=cast("Resources", unused),
            hub=Hub[VirtualMachineInstance](),
            clock=SystemClock(),
            state_dir=str(self.folder),
        )
        supervisor, read = Supervisor(), cast("HostFacts", facts)
        instances = Instances(config, services, read, supervisor)
        part = AgentPart(
            store=store.ready(),
            supervisor=supervisor,
            instances=instances,
            migrations=Migrations(config, services, instances, read, supervisor),
            hypervisor=hypervisor,
            facts=facts,
        )
        self.running.append(part)
        await instances.load()
        await part.migrations.load()
        return part

    async def stop(self) -> None:
        """No process runs any more."""
        while self.running:
            await self.running.pop().stop()


def instance(outgoing: str = "", *, name: str = "web") -> InstanceRecord:
    """A running instance, which the migration ``outgoing`` has."""
    uid = UID if name == "web" else f"uid-of-{name}"
    site = Site(
        facts=assumed_facts(),
        plan=PlanSettings(),
        defaults=DefaultsSettings(),
        limits=Limits(),
        holdings=(),
    )
    made = draft(
        load_vmi(MANIFEST.format(name=name, namespace=NAMESPACE, uid=uid)),
        Companions(),
        uid=uid,
        site=site,
        now="2026-01-01T00:00:00Z",
        boot_id="boot-1",
    )
    return msgspec.structs.replace(made, phase="Running", prepared=True, outgoing=outgoing)


def entry(
    name: str,
    target: str,
    *,
    phase: Phase,
    at: str = "2026-01-01T00:00:00Z",
    of: InstanceRecord | None = None,
    **changes: object,
) -> OutgoingEntry:
    """A migration of that instance that came to ``phase`` at ``at``."""
    record = of or instance()
    attempt = AttemptRecord(
        outgoing=Outgoing(
            attempt=f"uid-{name}",
            namespace=NAMESPACE,
            name=name,
            uuid=record.plan.identity.uuid,
            source_node="a",
            target_node="b",
            options=Options(),
            workload=Workload(memory_bytes=128 << 20),
        ),
        phase=phase,
        transitions=(Transition(phase=phase, at=at),),
        report=MigrationReport(succeeded=phase is Phase.SUCCEEDED) if phase.final else None,
    )
    metadata = ObjectMeta(name=name, namespace=NAMESPACE, uid=f"uid-{name}", creation_timestamp=at)
    return OutgoingEntry(
        manifest=VirtualMachineInstanceMigration(
            metadata=metadata, spec=VirtualMachineInstanceMigrationSpec(vmi_name=record.name)
        ),
        target=target,
        uid=record.uid,
        attempt=msgspec.structs.replace(attempt, **changes),
    )


def failed(name: str, target: str, cause: Cause, **changes: object) -> OutgoingEntry:
    """One that failed."""
    return entry(name, target, phase=Phase.FAILED, cause=cause, reason=f"for {cause.value}", **changes)  # type: ignore[arg-type]


def within(found: OutgoingEntry) -> InPlaceEntry:
    """A migration that only moves volumes, as far as that one."""
    return InPlaceEntry(manifest=found.manifest, uid=found.uid, attempt=found.attempt)
