# SPDX-License-Identifier: Apache-2.0
"""What a guest gives back before it moves: in time, too late, not at all; killed and cancelled meanwhile."""

from __future__ import annotations

import asyncio
import itertools

import pytest
from migration_stage import Stage, migrate
from migration_world import UUID, World, run

from launcher.errors import HypervisorError, HypervisorUnavailable, NotFound
from launcher.hypervisor.port import DomainRecord, DomainState, MigrateFlag
from launcher.migration.attempt import AttemptRecord, Cause, Phase
from launcher.migration.options import Options

FAST, SLOW = "sriov-fast", "sriov-slow"
POST_COPY = Options(allow_post_copy=True, allow_workload_disruption=True)


def with_devices(*aliases: str, gives_back_s: float | None = 0.3, options: Options | None = None) -> Stage:
    """A guest with these devices of its host."""
    world = World(duration_s=2)
    world.devices = set(aliases)
    world.gives_back_s = gives_back_s
    return Stage(world, options, unplug=aliases)


def asked(stage: Stage) -> int:
    return stage.world.calls.count("source.ask_back")


def test_the_guest_gives_its_devices_back_then_it_moves() -> None:
    stage = with_devices(FAST, SLOW)
    record = migrate(stage)
    assert (record.phase, stage.world.running, stage.world.devices) == (Phase.SUCCEEDED, ["target"], set())
    assert [step.reason for step in record.steps if step.action == "unplug"] == ["sriov-fast, sriov-slow"]
    calls = stage.world.calls
    assert calls.index("peer.prepare") < calls.index("source.ask_back") < calls.index("source.migrate")
    assert asked(stage) == 2, "each is asked for once"


def test_a_target_that_refuses_costs_the_guest_no_device() -> None:
    stage = with_devices(FAST)
    stage.hooks.fail = HypervisorError("no room")
    record = migrate(stage)
    assert (record.cause, asked(stage), stage.world.devices) == (Cause.REFUSED, 0, {FAST})


def test_without_devices_nobody_is_asked() -> None:
    stage = with_devices()
    assert migrate(stage).phase is Phase.SUCCEEDED
    assert "source.plugged" not in stage.world.calls


def test_post_copy_is_allowed_when_they_are_gone() -> None:
    stage = with_devices(FAST, options=POST_COPY)
    migrate(stage)
    assert stage.world.params is not None
    assert MigrateFlag.POSTCOPY in stage.world.params.flags


def test_a_guest_that_does_not_hear_the_first_request_is_asked_again() -> None:
    stage = with_devices(FAST, gives_back_s=12)
    assert migrate(stage).phase is Phase.SUCCEEDED
    assert asked(stage) == 2


@pytest.mark.parametrize(("gives_back_s", "says"), [(60.0, "within 30 s"), (None, "it refused sriov-fast")])
def test_a_guest_that_keeps_a_device_stays_with_a_cause_that_names_it(
    gives_back_s: float | None, says: str
) -> None:
    stage = with_devices(FAST, gives_back_s=gives_back_s)
    record = migrate(stage)
    assert (record.phase, record.cause) == (Phase.FAILED, Cause.HOST_DEVICE)
    assert "sriov-fast" in record.reason
    assert says in record.reason
    assert (stage.world.running, stage.world.params) == (["source"], None)
    assert stage.hooks.released == 1, "the target keeps nothing"
    assert asked(stage) == 3, "not in a busy loop"


def test_a_paused_guest_is_not_asked_in_vain() -> None:
    stage = with_devices(FAST)
    stage.world.source = DomainRecord(
        uuid=UUID, name="vm", state=DomainState.PAUSED, reason="user", persistent=True
    )
    record = migrate(stage)
    assert (record.cause, asked(stage)) == (Cause.HOST_DEVICE, 0)
    assert "paused" in record.reason


@pytest.mark.parametrize("call", ["plugged", "ask_back"])
def test_an_error_on_the_way_is_not_the_end(call: str) -> None:
    stage = with_devices(FAST)
    stage.world.errors[f"source.{call}"] = [HypervisorError("in the process of unplug")]
    if call == "ask_back":
        stage.world.errors[f"source.{call}"] *= 2
    assert migrate(stage).phase is Phase.SUCCEEDED


def test_errors_that_do_not_end_are_told() -> None:
    stage = with_devices(FAST, gives_back_s=None)
    stage.world.errors["source.ask_back"] = [HypervisorError("no such bus")] * 9
    record = migrate(stage)
    assert record.cause is Cause.HOST_DEVICE
    assert "no such bus" in record.reason


def test_a_guest_that_is_gone_meanwhile_ends_it() -> None:
    stage = with_devices(FAST)
    stage.world.errors["source.plugged"] = [NotFound("domain", UUID)]
    assert migrate(stage).phase is Phase.FAILED
    assert stage.hooks.released == 1


def test_a_restart_of_libvirtd_is_waited_for_by_whoever_runs_it() -> None:
    stage = with_devices(FAST)
    stage.world.errors["source.plugged"] = [HypervisorUnavailable("restarts")]

    async def scenario() -> AttemptRecord:
        with pytest.raises(HypervisorUnavailable):
            await stage.agent().run()
        return await stage.agent(stage.notebook.last).run()

    assert run(scenario()).phase is Phase.SUCCEEDED


def test_cancelled_at_any_call_the_guest_stays_or_has_moved() -> None:
    outcomes = set()
    for number in itertools.count(1):
        stage = with_devices(FAST, SLOW)

        async def scenario(stage: Stage = stage, number: int = number) -> AttemptRecord:
            agent = stage.agent()

            async def cancel(call: str) -> None:
                if len(stage.world.calls) == number:
                    await agent.cancel()

            stage.world.hook = cancel
            return await agent.run()

        record = run(scenario())
        if not record.cancel:
            assert number > 20
            break
        outcomes.add(record.phase)
        if record.phase is Phase.FAILED:
            assert record.cause is Cause.CANCELLED, number
            assert (stage.world.running, stage.world.target) == (["source"], None), number
            assert all(r.released for r in stage.target.records), number
        else:
            assert stage.world.running == ["target"], number
    assert outcomes == {Phase.SUCCEEDED, Phase.FAILED}


@pytest.mark.parametrize("away_s", [0.0, 200.0])
def test_killed_at_any_call_it_goes_on(away_s: float) -> None:
    succeeded = 0
    for number in itertools.count(1):
        stage = with_devices(FAST, SLOW)

        async def scenario(stage: Stage = stage, number: int = number) -> tuple[AttemptRecord, bool]:
            reached = asyncio.Event()

            async def stop(call: str) -> None:
                if len(stage.world.calls) == number:
                    reached.set()
                    await asyncio.sleep(3600)

            stage.world.hook = stop
            task = asyncio.create_task(stage.agent().run())
            waiting = asyncio.create_task(reached.wait())
            await asyncio.wait({task, waiting}, return_when="FIRST_COMPLETED")
            waiting.cancel()
            if task.done():
                return await task, False
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            stage.world.hook = None
            await asyncio.sleep(away_s)
            await stage.target.sweep()
            return await stage.agent(stage.notebook.last).run(), True

        record, killed = run(scenario())
        if not killed:
            assert number > 20
            break
        assert record.phase.final, number
        assert len(stage.world.running) == 1, number
        if record.phase is Phase.SUCCEEDED:
            succeeded += 1
            assert stage.world.running == ["target"], number
        else:
            assert record.cause is Cause.INTERRUPTED, (number, record.reason)
            assert stage.world.running == ["source"], number
    assert succeeded > 15
