# SPDX-License-Identifier: Apache-2.0
"""A request to cancel a migration counts, whenever it comes: also while the agent writes or reads for it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import pytest
from msgspec.structs import replace

from launcher.agent.hostfacts import HostFacts
from launcher.agent.instances import Instances
from launcher.agent.machine import Machine, Services
from launcher.agent.migration_status import OutgoingEntry
from launcher.agent.outgoing import OutgoingRuns
from launcher.agent.reconcile import Efforts, Resume, reconcile
from launcher.agent.recordings import Recordings
from launcher.agent.records import InstanceRecord, Moment
from launcher.agent.store import Store
from launcher.agent.supervisor import Supervisor
from launcher.agent.watch import Hub
from launcher.errors import InvalidRequest, NotFound, StorageError
from launcher.host.clock import SystemClock
from launcher.host.config import Config
from launcher.hypervisor.port import DomainRecord, DomainState, Event, Hypervisor, JobStats
from launcher.migration import monitor
from launcher.migration.attempt import AttemptRecord, Cause, Outgoing, Phase, Transition
from launcher.migration.options import Options, Workload
from launcher.plan.facts import NodeFacts
from launcher.spec.model import (
    ObjectMeta,
    VirtualMachineInstanceMigration,
    VirtualMachineInstanceMigrationSpec,
)

KEY = "lab/move"
Wait = Callable[[], Awaitable[None]]


class Running:
    """A hypervisor whose guest runs, and no job of it."""

    connected = True

    def subscribe(self, listener: Callable[[Event], None]) -> Callable[[], None]:
        return lambda: None

    async def domain(self, uuid: str) -> DomainRecord:
        return DomainRecord(
            uuid=uuid, name="lab_web", state=DomainState.RUNNING, reason="booted", persistent=True
        )

    async def domain_xml(self, uuid: str, **_: bool) -> str:
        raise NotFound("domain", uuid)

    async def job_stats(self, uuid: str) -> JobStats:
        return JobStats(kind="none")

    completed_job_stats = job_stats


class Slow:
    """Facts, and a store, that let somebody come in between."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.between: Wait | None = None
        self.when = "facts"

    async def get(self) -> NodeFacts:
        await self._pass("facts")
        return NodeFacts()

    async def put(self, kind: str, key: str, text: bytes) -> None:
        if b'"earlier":[{' in text:
            await self._pass("second attempt")
        await self._store.put(kind, key, text)

    async def _pass(self, what: str) -> None:
        between, self.between = (self.between, None) if what == self.when else (None, self.between)
        if between is not None:
            await between()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class Full(Slow):
    """A store whose disk is full."""

    async def put(self, kind: str, key: str, text: bytes) -> None:
        raise StorageError("launcher.db", "the disk is full")


def entry_of(record: InstanceRecord, folder: Path, phase: Phase) -> OutgoingEntry:
    outgoing = Outgoing(
        attempt="uid-move",
        namespace="lab",
        name="move",
        uuid=record.plan.identity.uuid,
        source_node="a",
        target_node="b",
        options=Options(),
        workload=Workload(memory_bytes=1),
    )
    return OutgoingEntry(
        manifest=VirtualMachineInstanceMigration(
            metadata=ObjectMeta(name="move", namespace="lab", uid="uid-move"),
            spec=VirtualMachineInstanceMigrationSpec(vmi_name="web"),
        ),
        target=f"unix:{folder}/nobody",
        uid=record.uid,
        attempt=AttemptRecord(
            outgoing=outgoing, phase=phase, transitions=(Transition(phase=phase, at="2026-01-01T00:00:00Z"),)
        ),
    )


def agent(slow: Slow, record: InstanceRecord, folder: Path) -> tuple[OutgoingRuns, Machine, Supervisor]:
    services = Services(
        node="a",
        hypervisor=cast(Hypervisor, Running()),
        store=cast(Store, slow),
        resources=cast(Any, None),
        hub=Hub(),
        clock=SystemClock(),
    )
    machine = Machine(services, record)
    there = type("There", (), {"machines": lambda _: (machine,), "records": lambda _: (machine.record,)})()
    supervisor = Supervisor()
    config = Config(state_dir=str(folder))
    recordings = Recordings(folder / "recordings")
    runs = OutgoingRuns(
        config, services, cast(Instances, there), cast(HostFacts, slow), supervisor, Hub(), recordings
    )
    return runs, machine, supervisor


@pytest.mark.parametrize(("phase", "when"), [(Phase.PENDING, "facts"), (Phase.RUNNING, "second attempt")])
async def test_it_counts(
    make_record: Callable[..., InstanceRecord],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    phase: Phase,
    when: str,
) -> None:
    monkeypatch.setattr(monitor, "GONE_S", 0.0)
    store = await Store.open(tmp_path / "launcher.db")
    slow = Slow(store)
    slow.when = when
    record = replace(make_record(), phase="Running", prepared=True, outgoing="uid-move")
    runs, machine, supervisor = agent(slow, record, tmp_path)
    slow.between = lambda: runs.cancel(KEY)
    entry = entry_of(record, tmp_path, phase)
    await runs.save(entry)
    runs.run(entry)
    async with asyncio.timeout(20):
        while machine.record.outgoing:
            await asyncio.sleep(0.01)
    found = runs.find(KEY)
    assert found is not None
    assert slow.between is None
    assert (found.attempt.phase, found.attempt.cause) == (Phase.FAILED, Cause.CANCELLED)
    await supervisor.stop()
    await runs.close()
    await store.close()


@pytest.mark.parametrize("deleted", [False, True])
async def test_a_target_that_cannot_be_spoken_to_lets_go_of_the_instance(
    make_record: Callable[..., InstanceRecord], tmp_path: Path, deleted: bool
) -> None:
    """It was accepted when the configuration was another; it fails with what is wrong now, and for good."""
    store = await Store.open(tmp_path / "launcher.db")
    record = replace(make_record(), phase="Running", prepared=True, outgoing="uid-move")
    runs, machine, supervisor = agent(Slow(store), record, tmp_path)
    entry = replace(entry_of(record, tmp_path, Phase.PENDING), target="192.0.2.2:7443")
    with pytest.raises(InvalidRequest):
        runs.check(entry.target)
    await runs.save(entry)
    runs.run(entry)
    async with asyncio.timeout(20):
        while (found := runs.find(KEY)) is not None and not found.attempt.phase.final:
            await asyncio.sleep(0.01)
        if deleted:
            await runs.delete(KEY)
        while machine.record.outgoing or (deleted and runs.find(KEY)):
            await asyncio.sleep(0.01)
    found = runs.find(KEY)
    assert (found is None) == deleted
    if found is not None:
        assert found.attempt.cause is Cause.SOURCE_UNABLE
        assert "reached over TCP, which needs" in found.attempt.reason
    await supervisor.stop()
    await runs.close()
    await store.close()


async def test_what_was_forgotten_is_not_carried_on(
    make_record: Callable[..., InstanceRecord], tmp_path: Path
) -> None:
    store = await Store.open(tmp_path / "launcher.db")
    record = replace(make_record(), phase="Running", prepared=True)
    runs, _, supervisor = agent(Slow(store), record, tmp_path)
    entry = entry_of(record, tmp_path, Phase.PENDING)
    await runs.save(entry)
    await runs.drop(entry)
    task = runs.run(entry)
    async with asyncio.timeout(5):
        await task
    await supervisor.stop()
    await runs.close()
    await store.close()


@pytest.mark.parametrize("reason", ["user", "unknown", "starting-up", "migration"])
async def test_a_guest_in_doubt_that_is_deleted_does_not_run_meanwhile(
    make_record: Callable[..., InstanceRecord], tmp_path: Path, reason: str
) -> None:
    """The other node may have it: what is here is let go of only to be ended."""
    store = await Store.open(tmp_path / "launcher.db")
    record = replace(make_record(), phase="Running", prepared=True, outgoing="uid-move")
    runs, machine, _ = agent(Slow(store), record, tmp_path)
    entry = entry_of(record, tmp_path, Phase.FAILED)
    await runs.save(replace(entry, attempt=replace(entry.attempt, cause=Cause.UNRESOLVED)))
    await runs.cancel_attempt(machine)
    stopped = DomainRecord(
        uuid=record.plan.identity.uuid,
        name="lab_web",
        state=DomainState.PAUSED,
        reason=reason,
        persistent=True,
    )
    decision = reconcile(
        machine.record, stopped, now=Moment(boot_id=record.boot_id, seconds=0.0), efforts=Efforts()
    )
    assert machine.record.outgoing == ""
    assert decision.actions
    assert not any(isinstance(action, Resume) for action in decision.actions)
    await runs.close()
    await store.close()


async def test_a_migration_that_could_not_be_written_down_is_none(
    make_record: Callable[..., InstanceRecord], tmp_path: Path
) -> None:
    store = await Store.open(tmp_path / "launcher.db")
    record = make_record()
    runs, _, _ = agent(Full(store), record, tmp_path)
    with pytest.raises(StorageError):
        await runs.save(entry_of(record, tmp_path, Phase.PENDING))
    assert runs.entries() == ()
    await runs.close()
    await store.close()
