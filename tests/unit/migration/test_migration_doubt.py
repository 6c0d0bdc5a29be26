# SPDX-License-Identifier: Apache-2.0
"""Ends at which one side knows less than the other: nobody lets a copy run, or ends one, on a guess."""

from __future__ import annotations

import asyncio

import pytest
from migration_stage import Stage
from migration_world import UUID, World, run

from launcher.errors import StorageError
from launcher.hypervisor.port import DomainRecord, DomainState
from launcher.migration.attempt import AttemptRecord, Cause, Phase
from launcher.migration.options import Options
from launcher.migration.peer import PrepareRequest
from launcher.migration.target import LEASE_S

POST_COPY = Options(allow_post_copy=True, allow_workload_disruption=True)


def domain(state: DomainState, reason: str) -> DomainRecord:
    return DomainRecord(uuid=UUID, name="default_vm", state=state, reason=reason, persistent=True)


@pytest.mark.parametrize("reason", ["user", "ioerror"])
def test_a_paused_guest_is_not_the_sources_while_the_target_cannot_be_asked(reason: str) -> None:
    """It may have been handed over, and whoever lets it go on here would make two of it."""
    stage = Stage(World(fault="switch-none"))

    async def scenario() -> AttemptRecord:
        async def hand_over(label: str) -> None:
            if label.startswith("source.") and stage.world.completed is not None:
                stage.world.source = domain(DomainState.PAUSED, reason)
                stage.world.target = domain(DomainState.PAUSED, "user")
                stage.wire.down = {"state", "finish"}

        stage.world.hook = hand_over
        return await stage.agent().run()

    record = run(scenario())
    assert (record.phase, record.cause) == (Phase.FAILED, Cause.UNRESOLVED)


def test_a_paused_guest_whose_migration_was_aborted_never_left() -> None:
    stage = Stage(World(duration_s=None))

    async def scenario() -> AttemptRecord:
        stage.world.source = domain(DomainState.PAUSED, "user")
        agent = stage.agent()
        task = asyncio.create_task(agent.run())
        await asyncio.sleep(3)
        stage.wire.down = {"state", "finish"}
        await agent.cancel()
        return await task

    record = run(scenario())
    assert (record.phase, record.cause, record.untold) == (Phase.FAILED, Cause.CANCELLED, True)


def test_a_whole_guest_that_its_source_gave_up_is_the_targets() -> None:
    """Its post-copy was taken for broken, and completed: it lives on, and somebody has to look after it."""
    stage = Stage(World())

    async def scenario() -> None:
        await stage.target.prepare(
            PrepareRequest(attempt="one", source_node="a", vmi="{}", domain_xml="<domain/>")
        )
        stage.world.source, stage.world.target = None, domain(DomainState.RUNNING, "migrated")
        state = await stage.target.finish("one", succeeded=False, discard=True)
        assert state.domain == "running"
        await asyncio.sleep(LEASE_S + 1)
        await stage.target.sweep()

    run(scenario())
    assert stage.world.running == ["target"]
    assert stage.hooks.adopted == 1


def test_a_guest_that_left_the_target_again_was_not_lost_in_halves() -> None:
    """The target took it over whole and sent it on; the source's libvirt is slow to see that it is over."""
    stage = Stage(World(duration_s=None, fault="post-copy"), POST_COPY)
    stage.world.resume_errors = ["no route"] * 50

    async def leave(label: str) -> None:
        source = stage.world.source
        broke = source is not None and source.reason == "post-copy-failed"
        if label == "source.migrate" and broke and stage.world.target is not None:
            stage.world.target = domain(DomainState.RUNNING, "migrated")
            await stage.target.arrived(UUID)
            stage.world.target = None

    stage.world.hook = leave

    async def scenario() -> AttemptRecord:
        return await stage.agent().run()

    record = run(scenario())
    assert stage.hooks.adopted == 1
    assert (record.phase, record.cause) == (Phase.SUCCEEDED, Cause.NONE)
    assert record.confirmed
    assert stage.world.source is None


@pytest.mark.parametrize("what", ["journal", "recording"])
def test_a_disk_of_the_agents_that_hangs_does_not_keep_a_migration_from_ending(what: str) -> None:
    stage = Stage(World(duration_s=None), Options(progress_timeout_s=30))
    hanging: list[str] = []

    async def hang(record: AttemptRecord | None = None) -> None:
        hanging.append(f"{what} {record}")
        await asyncio.sleep(10**9)

    async def scenario() -> AttemptRecord:
        agent = stage.agent()
        task = asyncio.create_task(agent.run())
        await asyncio.sleep(3)
        if what == "journal":
            stage.notebook.save = hang  # type: ignore[method-assign]
        else:
            stage.tape.flush = hang  # type: ignore[method-assign]
        stage.world.moving = False
        async with asyncio.timeout(600):
            return await task

    record = run(scenario())
    assert record.phase is Phase.FAILED
    assert stage.world.running == ["source"]
    assert hanging


def test_no_job_begins_that_is_not_written_down() -> None:
    """The next agent would not look for it, and send the guest a second time."""
    stage = Stage(World())
    save = stage.notebook.save

    async def full(record: AttemptRecord) -> None:
        if record.phase is Phase.RUNNING:
            raise StorageError("launcher.db", "the disk is full")
        await save(record)

    stage.notebook.save = full  # type: ignore[method-assign]

    async def scenario() -> AttemptRecord:
        return await stage.agent().run()

    record = run(scenario())
    assert "source.migrate" not in stage.world.calls
    assert (record.phase, record.cause) == (Phase.FAILED, Cause.SOURCE_UNABLE)
    assert "the disk is full" in record.reason
    assert stage.hooks.released == 1
