# SPDX-License-Identifier: Apache-2.0
"""Cancelled at any call, killed at any call: the guest always has one owner, the record a clear end."""

from __future__ import annotations

import asyncio
import itertools

import pytest
from migration_stage import Stage
from migration_world import World, run

from launcher.errors import HypervisorError
from launcher.migration.attempt import AttemptRecord, CancelAnswer, Cause, Phase
from launcher.migration.options import Options

POST_COPY = Options(allow_post_copy=True, allow_workload_disruption=True, completion_timeout_per_gib_s=20)


# Cancel --------------------------------------------------------------------------------------------------


def test_cancel_ends_a_running_migration() -> None:
    stage = Stage(World(duration_s=None))

    async def scenario() -> AttemptRecord:
        agent = stage.agent()
        task = asyncio.create_task(agent.run())
        await asyncio.sleep(5)
        assert await agent.cancel() is CancelAnswer.ACCEPTED
        record = await task
        assert await agent.cancel() is CancelAnswer.ENDED
        return record

    record = run(scenario())
    assert (record.cause, record.reason) == (Cause.CANCELLED, "cancelled on request")
    assert stage.world.running == ["source"]


def test_cancel_in_post_copy_is_too_late_and_says_so() -> None:
    stage = Stage(World(duration_s=None), POST_COPY)

    async def scenario() -> AttemptRecord:
        agent = stage.agent()
        task = asyncio.create_task(agent.run())
        while not agent.record.post_copy:
            await asyncio.sleep(0.1)
        assert await agent.cancel() is CancelAnswer.TOO_LATE
        return await task

    record = run(scenario())
    assert (record.phase, stage.world.calls.count("source.abort_job")) == (Phase.SUCCEEDED, 0)
    assert "too late" in record.reason


def test_a_cancel_during_any_call_has_a_clear_outcome() -> None:
    outcomes = set()
    for number in itertools.count(1):
        stage = Stage(World(duration_s=2))

        async def scenario(stage: Stage = stage, number: int = number) -> AttemptRecord:
            agent = stage.agent()

            async def cancel(call: str) -> None:
                if len(stage.world.calls) == number:
                    await agent.cancel()

            stage.world.hook = cancel
            return await agent.run()

        record = run(scenario())
        if not record.cancel:
            assert number > 15, "the run made fewer calls than a migration takes"
            break
        outcomes.add(record.phase)
        if record.phase is Phase.SUCCEEDED:
            assert (stage.world.running, record.confirmed) == (["target"], True), number
            assert "too late" in record.reason, number
        else:
            assert (record.cause, stage.world.running, stage.world.target) == (
                Cause.CANCELLED,
                ["source"],
                None,
            ), number
            assert all(r.released for r in stage.target.records), number
    assert outcomes == {Phase.SUCCEEDED, Phase.FAILED}


# The agent dies ------------------------------------------------------------------------------------------


async def killed_at(stage: Stage, number: int, away_s: float) -> tuple[AttemptRecord, bool]:
    """Run, kill the source's agent when it makes its call ``number``, start it again from the journal.

    The second value tells whether it made that many calls at all.
    """
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
    return await stage.agent(stage.notebook.last).run(), True


@pytest.mark.parametrize("away_s", [0.0, 30.0])
def test_an_agent_killed_at_any_call_goes_on(away_s: float) -> None:
    succeeded = 0
    for number in itertools.count(1):
        stage = Stage(World(duration_s=2))
        record, killed = run(killed_at(stage, number, away_s))
        if not killed:
            assert number > 15, "the run made fewer calls than a migration takes"
            break
        if record.phase is Phase.SUCCEEDED:
            succeeded += 1
            assert (stage.world.running, stage.world.source, record.confirmed) == (["target"], None, True)
            assert stage.hooks.adopted == 1, number
        else:
            assert record.cause is Cause.INTERRUPTED, (number, record.reason)
            assert "migrate" in stage.world.calls[number - 1] or stage.world.params is None, number
            assert (stage.world.running, stage.world.target) == (["source"], None), number
    assert succeeded > 12


def test_an_agent_killed_on_the_way_to_post_copy_switches_once() -> None:
    for number in itertools.count(2, 9):
        stage = Stage(World(duration_s=None), POST_COPY)
        record, killed = run(killed_at(stage, number, 0.5))
        if not killed:
            assert number > 80
            break
        assert record.phase.final, number
        assert len(stage.world.running) == 1, number
        assert [s.action for s in record.steps].count("start post-copy") <= 1, number


def test_the_policy_goes_on_with_its_own_state_after_a_restart() -> None:
    stage = Stage(World(duration_s=40))

    async def scenario() -> AttemptRecord:
        task = asyncio.create_task(stage.agent().run())
        while stage.world.limit_ms < 364:
            await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(1)
        return await stage.agent(stage.notebook.last).run()

    record = run(scenario())
    assert record.phase is Phase.SUCCEEDED
    assert [ms for what, ms in stage.world.limits if what == "set"] == [150, 257, 364, 471]


def test_a_cancel_survives_a_restart() -> None:
    stage = Stage(World(duration_s=None))

    async def scenario() -> AttemptRecord:
        agent = stage.agent()
        task = asyncio.create_task(agent.run())
        await asyncio.sleep(3)
        stage.world.errors["source.abort_job"] = [HypervisorError("busy")] * 3
        await agent.cancel()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return await stage.agent(stage.notebook.last).run()

    record = run(scenario())
    assert (record.cause, stage.world.running) == (Cause.CANCELLED, ["source"])
