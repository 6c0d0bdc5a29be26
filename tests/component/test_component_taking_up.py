# SPDX-License-Identifier: Apache-2.0
"""What is asked of a migration while an agent takes it up again, or while a disk is slow, is not lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from agent_part import (
    NAMESPACE,
    WITHIN,
    AgentPart,
    Disk,
    StandInFacts,
    StandInHypervisor,
    entry,
    instance,
    within,
)
from standin_agent import StandInAgent

from launcher.agent.records import InstanceRecord
from launcher.api.server import ApiServer
from launcher.errors import AlreadyExists, MigrationRefused
from launcher.host.clock import SystemClock
from launcher.hypervisor.port import ConnectionEvent
from launcher.migration.attempt import Cause, Phase
from launcher.spec.model import UtilityVolume


@pytest.fixture
async def disk(tmp_path: Path) -> AsyncIterator[Disk]:
    made = Disk(folder=tmp_path)
    yield made
    await made.stop()


@pytest.fixture
def target(server: ApiServer, run_dir: Path) -> str:
    return f"unix:{run_dir}/s"


async def taking_up(disk: Disk, target: str, phase: Phase) -> AgentPart:
    """An agent that just asks for what it needs to go on with a migration."""
    began = SystemClock().monotonic() if phase is Phase.RUNNING else None
    await disk.write(instance("uid-move"), [entry("move", target, phase=phase, job_began=began)])
    facts = StandInFacts()
    facts.given.clear()
    part = await disk.start(StandInHypervisor(runs=True), facts)
    async with asyncio.timeout(20):
        await facts.asked.wait()
    return part


async def cancelled(part: AgentPart) -> None:
    found = await part.until(lambda found: found["move"].attempt.phase.final)
    assert found["move"].attempt.cause is Cause.CANCELLED, found["move"].attempt.reason
    assert found["move"].attempt.cancel


async def test_a_request_to_cancel_before_the_job(disk: Disk, agent: StandInAgent, target: str) -> None:
    part = await taking_up(disk, target, Phase.PREPARING_TARGET)
    await part.migrations.cancel(NAMESPACE, "move")
    part.facts.given.set()
    await cancelled(part)
    assert agent.prepared == []


async def test_a_request_to_cancel_of_a_job_that_runs(disk: Disk, target: str) -> None:
    part = await taking_up(disk, target, Phase.RUNNING)
    await part.migrations.cancel(NAMESPACE, "move")
    part.facts.given.set()
    await cancelled(part)
    assert part.hypervisor.aborted.is_set()


async def test_the_job_is_taken_up_while_the_request_is_written_down(disk: Disk, target: str) -> None:
    part = await taking_up(disk, target, Phase.RUNNING)
    part.store.slow = lambda text: b'"cancel":true' in text
    request = asyncio.create_task(part.migrations.cancel(NAMESPACE, "move"))
    async with asyncio.timeout(20):
        await part.store.begun.wait()
        part.facts.given.set()
        await part.hypervisor.looked_at.wait()
        part.store.go.set()
        await request
    await cancelled(part)
    assert part.hypervisor.aborted.is_set()


async def test_what_it_waits_for_changes_while_the_request_is_written_down(
    disk: Disk, agent: StandInAgent, target: str
) -> None:
    record, dump = instance("uid-move"), UtilityVolume(name="dump", claim_name="dump")
    await disk.write(utility(record, dump), [entry("move", target, phase=Phase.PENDING)])
    part = await disk.start(StandInHypervisor(runs=True))
    await part.until(lambda found: "dump" in found["move"].attempt.held)
    part.store.slow = lambda text: b'"cancel":true' in text
    request = asyncio.create_task(part.migrations.cancel(NAMESPACE, "move"))
    async with asyncio.timeout(20):
        await part.store.begun.wait()
        await part.machine.update(utility)
        while part.store.waiting < 2:
            await asyncio.sleep(0.005)
        part.store.go.set()
        await request
    await cancelled(part)
    assert agent.prepared == []


@pytest.mark.parametrize("written", [True, False])
async def test_a_move_of_volumes_ends_while_it_is_to_be_forgotten(
    disk: Disk, target: str, *, written: bool
) -> None:
    """Before its end is written down, whether the request is by then or not."""
    move = within(entry("move", target, phase=Phase.PENDING, cancel=True))
    await disk.write(instance("uid-move"), [move])
    part = await disk.start()
    part.store.slow_with = lambda record: not record.outgoing
    part.hypervisor.connected = True
    part.migrations.on_event(ConnectionEvent(up=True))
    async with asyncio.timeout(20):
        await part.store.begun.wait()
        part.store.slow = lambda text: not written and b'"deleted":true' in text
        request = asyncio.create_task(part.migrations.delete(NAMESPACE, "move"))
        while not (request.done() if written else part.store.waiting):
            await asyncio.sleep(0.005)
        part.store.go.set()
        await request
        while await part.store.documents(WITHIN):
            await asyncio.sleep(0.005)
    assert part.machine.record.outgoing == ""


def utility(record: InstanceRecord, *volumes: UtilityVolume) -> InstanceRecord:
    """The record with these utility volumes."""
    spec = msgspec.structs.replace(record.defaulted.spec, utility_volumes=volumes)
    return msgspec.structs.replace(record, defaulted=msgspec.structs.replace(record.defaulted, spec=spec))


async def test_of_two_of_one_name_that_are_asked_for_at_once_one_is_looked_at(
    disk: Disk, target: str
) -> None:
    await disk.write(instance(""), [])
    part = await disk.start()
    asked = entry("twice", target, phase=Phase.PENDING).manifest
    begun = await asyncio.gather(
        *(part.migrations.create(asked, target=target) for _ in range(2)), return_exceptions=True
    )
    assert [type(one) for one in begun] == [MigrationRefused, AlreadyExists], begun
    with pytest.raises(MigrationRefused, match="certificates"):  # The name is free again.
        await part.migrations.create(asked, target=target)
    assert await part.stored() == {}
