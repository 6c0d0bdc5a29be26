# SPDX-License-Identifier: Apache-2.0
"""Ends that one side alone cannot judge: broken streams, lost answers, guests that end or double."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from migration_stage import Stage, migrate
from migration_world import UUID, World, run

from launcher.errors import HypervisorUnavailable
from launcher.hypervisor.port import DomainRecord, DomainState
from launcher.migration.attempt import AttemptRecord, Cause, Phase
from launcher.migration.options import Options


def test_a_broken_stream_leaves_the_guest_and_releases_the_target() -> None:
    stage = Stage(World(fault="stream"))
    record = migrate(stage)
    assert (record.cause, stage.world.running) == (Cause.HYPERVISOR, ["source"])
    assert "stream closed" in record.reason
    assert (stage.hooks.released, stage.world.target) == (1, None)


def test_a_guest_that_powers_off_is_no_failure_to_restart_from() -> None:
    stage = Stage(World(fault="guest-off"))
    record = migrate(stage)
    assert (record.cause, stage.world.running) == (Cause.GUEST_ENDED, [])
    assert stage.world.source is not None, "its definition stays"


@pytest.mark.parametrize(
    ("reason", "cause"), [("shutdown", Cause.GUEST_ENDED), ("crashed", Cause.UNRESOLVED)]
)
def test_a_guest_that_is_off_while_the_target_does_not_answer(reason: str, cause: Cause) -> None:
    """It may run there, unless it powered off by itself here."""
    stage = Stage(World(fault="guest-off"))

    async def cut_off(call: str) -> None:
        if call == "peer.state":
            stage.wire.down = {"state", "finish"}
            assert stage.world.source is not None
            stage.world.put("source", replace(stage.world.source, reason=reason))

    stage.world.hook = cut_off
    record = migrate(stage)
    assert (record.cause, stage.world.running) == (cause, [])
    assert stage.hooks.released == 0


def test_a_guest_that_is_on_neither_side_is_told_as_lost_and_only_the_reservation_is_given_back() -> None:
    stage = Stage(World())

    async def vanish(call: str) -> None:
        if call == "peer.finish":
            stage.world.put("target", None)

    stage.world.hook = vanish
    record = migrate(stage)
    assert record.cause is Cause.LOST
    assert stage.world.source is not None, "what is left of it is kept"
    assert stage.hooks.released == 1, "the target does not wait for its lease to run out"


def test_a_guest_that_runs_on_both_sides_is_left_to_a_person() -> None:
    stage = Stage(World(fault="stream"))

    async def appear(call: str) -> None:
        if call == "peer.state":  # Paused on purpose: the world itself forbids two that run.
            twin = DomainRecord(
                uuid=UUID, name="twin", state=DomainState.PAUSED, reason="user", persistent=True
            )
            stage.world.put("target", twin)

    stage.world.hook = appear
    record = migrate(stage)
    assert (record.cause, stage.world.running) == (Cause.CONFLICT, ["source"])
    assert stage.world.target is not None


def test_of_two_copies_the_one_that_came_over_is_ended_at_once() -> None:
    """libvirt resumed the source, and the target's began to run later than that."""
    stage = Stage(World(fault="stream"))
    stage.world.expendable.add("target")

    async def appear(call: str) -> None:
        if call == "peer.state" and not stage.hooks.released:
            twin = DomainRecord(
                uuid=UUID, name="default_vm", state=DomainState.RUNNING, reason="migrated", persistent=True
            )
            stage.world.put("target", twin)

    stage.world.hook = appear
    record = migrate(stage)
    assert (record.cause, record.untold, stage.world.running) == (Cause.HYPERVISOR, False, ["source"])
    assert (stage.world.target, stage.hooks.released) == (None, 1)


def test_a_target_that_did_not_hear_that_the_guest_stayed_is_remembered() -> None:
    stage = Stage(World(fault="stream"))
    stage.wire.down.update({"state", "finish"})
    record = migrate(stage)
    assert (record.phase, record.untold, stage.world.running) == (Phase.FAILED, True, ["source"])
    stage = Stage(World(fault="stream"))
    assert not migrate(stage).untold


@pytest.mark.parametrize(
    ("fault", "owner"), [("none", "source"), ("incoming", "source"), ("running", "target")]
)
def test_a_switchover_without_an_answer_is_decided_by_what_the_target_shows(fault: str, owner: str) -> None:
    stage = Stage(World(fault=f"switch-{fault}"))
    record = migrate(stage)
    assert stage.world.running == [owner]
    assert record.phase is (Phase.SUCCEEDED if owner == "target" else Phase.FAILED)
    assert (stage.world.source is None) == (owner == "target")


def test_the_source_stays_stopped_while_the_target_cannot_be_asked() -> None:
    stage = Stage(World(fault="switch-none"))
    stage.wire.down.update({"state", "finish"})
    record = migrate(stage)
    assert (record.cause, stage.world.running) == (Cause.UNRESOLVED, [])
    assert "source.resume" not in stage.world.calls


def test_the_source_is_kept_until_the_target_confirms() -> None:
    stage = Stage(World())
    stage.wire.down.update({"state", "finish"})

    async def scenario() -> tuple[AttemptRecord, AttemptRecord]:
        first = await stage.agent().run()
        assert stage.world.source is not None, "nothing is forgotten without proof"
        stage.wire.down.clear()
        return first, await stage.agent(stage.notebook.last).run()

    first, second = run(scenario())
    assert (first.phase, first.confirmed) == (Phase.SUCCEEDED, False)
    assert (second.phase, second.confirmed, stage.world.source) == (Phase.SUCCEEDED, True, None)


def test_a_restart_of_libvirtd_on_the_source_is_told_as_such() -> None:
    stage = Stage(World(duration_s=None))

    async def kill(call: str) -> None:
        if stage.world.iteration == 3 and stage.world.began is not None:
            stage.world.kill_libvirtd()
            stage.world.errors["source.job_stats"] = [HypervisorUnavailable("down")] * 3

    stage.world.hook = kill
    record = migrate(stage)
    assert (record.cause, stage.world.running) == (Cause.INTERRUPTED, ["source"])


def test_a_connection_that_breaks_does_not_end_a_job_that_goes_on() -> None:
    stage = Stage(World(duration_s=8))

    async def scenario() -> AttemptRecord:
        agent = stage.agent()
        task = asyncio.create_task(agent.run())
        while stage.world.iteration < 3:
            await asyncio.sleep(0.1)
        stage.world.disconnect()
        stage.world.errors["source.job_stats"] = [HypervisorUnavailable("down")] * 4
        return await task

    assert run(scenario()).phase is Phase.SUCCEEDED


def test_a_libvirt_that_stays_away_leaves_the_attempt_to_be_taken_up_again() -> None:
    stage = Stage(World(duration_s=None), Options(completion_timeout_per_gib_s=0))

    async def scenario() -> AttemptRecord:
        task = asyncio.create_task(stage.agent().run())
        while stage.world.iteration < 3:
            await asyncio.sleep(0.1)
        stage.world.errors["source.job_stats"] = [HypervisorUnavailable("down")] * 100_000
        with pytest.raises(HypervisorUnavailable):
            await task
        assert stage.notebook.last.phase is Phase.RUNNING
        stage.world.errors["source.job_stats"].clear()
        stage.world.duration_s = 0
        return await stage.agent(stage.notebook.last).run()

    assert run(scenario()).phase is Phase.SUCCEEDED
