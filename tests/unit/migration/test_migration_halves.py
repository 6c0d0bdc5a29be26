# SPDX-License-Identifier: Apache-2.0
"""One half of a guest is gone in post-copy: the other is ended, but never while the first may live."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import replace

import msgspec
import pytest
from migration_stage import Stage
from migration_world import UUID, World, run

from launcher.agent.reminder import remind
from launcher.errors import HypervisorUnavailable
from launcher.hypervisor.port import DomainRecord, DomainState
from launcher.migration.attempt import AttemptRecord, Cause, Phase, reopened
from launcher.migration.options import Options
from launcher.migration.peer import PrepareRequest

POST_COPY = Options(allow_post_copy=True, allow_workload_disruption=True)
UNREACHABLE = "unable to connect to server at 'b:49152': No route to host"


def broken(side: str, state: DomainState | None, reason: str = "crashed") -> Stage:
    """Post-copy breaks, and at the first try to resume it the QEMU of ``side`` is found to have ended."""
    stage = Stage(World(duration_s=None, fault="post-copy"), POST_COPY)
    stage.world.resume_errors = [UNREACHABLE] * 50

    async def die(label: str) -> None:
        record: DomainRecord | None = getattr(stage.world, side)
        if label == "source.migrate" and record is not None and record.reason == "post-copy-failed":
            dead = None if state is None else replace(record, state=state, reason=reason)
            stage.world.put(side, dead)

    stage.world.hook = die
    return stage


def carry(stage: Stage, record: AttemptRecord | None = None) -> AttemptRecord:
    async def main() -> AttemptRecord:
        return await stage.agent(record).run()

    return run(main())


def nothing_lives(stage: Stage) -> bool:
    source = stage.world.source
    return stage.world.target is None and (source is None or source.state is DomainState.SHUTOFF)


DEATHS = pytest.mark.parametrize(
    ("side", "state"),
    [
        ("target", None),
        ("target", DomainState.SHUTOFF),
        ("target", DomainState.CRASHED),
        ("source", DomainState.SHUTOFF),
        ("source", DomainState.CRASHED),
    ],
)


@DEATHS
def test_the_other_half_is_ended(side: str, state: DomainState | None) -> None:
    stage = broken(side, state)
    record = carry(stage)
    assert (record.phase, record.cause) == (Phase.FAILED, Cause.LOST)
    assert f"QEMU ended on the {side}" in record.reason
    assert "crash-consistent" in record.reason
    assert record.given_up == record.reason
    assert (stage.hooks.adopted, stage.hooks.released, stage.hooks.fenced) == (0, 1, 1)
    if side == "source":
        assert stage.world.target is None
    else:
        assert nothing_lives(stage)


def test_a_guest_that_powered_off_on_the_target_ended_well() -> None:
    stage = broken("target", DomainState.SHUTOFF, "shutdown")
    record = carry(stage)
    assert (record.cause, nothing_lives(stage)) == (Cause.GUEST_ENDED, True)
    assert record.given_up


@pytest.mark.parametrize(
    ("side", "state"),
    [("target", None), ("target", DomainState.SHUTOFF), ("source", DomainState.SHUTOFF)],
)
def test_an_agent_that_is_killed_at_any_call_comes_to_the_same_end(
    side: str, state: DomainState | None
) -> None:
    died = 0
    for number in itertools.count(1):
        stage = broken(side, state)
        die = stage.world.hook
        assert die is not None
        calls = 0
        task: asyncio.Task[AttemptRecord] | None = None

        async def kill(label: str) -> None:
            nonlocal calls
            await die(label)  # noqa: B023 - awaited in this round
            if stage.world.calls.count("source.migrate") > 1:  # noqa: B023 - from the resume on it is dead
                calls += 1
                if calls == number and task is not None:  # noqa: B023
                    task.cancel()  # noqa: B023
                    await asyncio.sleep(0)

        stage.world.hook = kill

        async def main() -> AttemptRecord:
            nonlocal task
            task = asyncio.create_task(stage.agent().run())  # noqa: B023
            try:
                return await task
            except asyncio.CancelledError:
                return await stage.agent(stage.notebook.last).run()  # noqa: B023

        record = run(main())
        assert (record.phase, record.cause) == (Phase.FAILED, Cause.LOST), number
        assert stage.world.target is None, number
        died += 1
        if calls < number:
            break
    assert died > 10


def test_a_source_that_is_gone_and_a_target_that_does_not_answer_prove_nothing() -> None:
    stage = broken("source", DomainState.SHUTOFF)
    die = stage.world.hook
    assert die is not None

    async def cut_off(label: str) -> None:
        await die(label)
        if stage.world.source is not None and stage.world.source.reason == "crashed":
            stage.wire.down = {"state", "finish"}

    stage.world.hook = cut_off
    record = carry(stage)
    assert record.cause is Cause.UNRESOLVED
    assert (stage.hooks.released, stage.world.running) == (0, ["target"])

    stage.wire.down = set()
    stage.world.hook = None
    record = carry(stage, reopened(record, "later"))
    assert (record.cause, stage.world.running) == (Cause.LOST, [])


def test_a_target_whose_libvirtd_does_not_answer_proves_nothing() -> None:
    stage = broken("target", DomainState.SHUTOFF)
    stage.world.errors["target.domain"] = [HypervisorUnavailable("it stands still")] * 10_000
    stage.world.hook = None

    async def main() -> AttemptRecord:
        task = asyncio.create_task((agent := stage.agent()).run())
        await asyncio.sleep(600)
        await agent.cancel()
        return await task

    record = run(main())
    assert record.cause is Cause.POST_COPY_FAILED
    assert "both halves are kept" in record.reason
    assert (stage.hooks.released, stage.world.running) == (0, ["target"])
    assert stage.world.source is not None
    assert stage.world.source.reason == "post-copy-failed"


def test_a_target_that_may_still_have_all_of_it_is_not_touched() -> None:
    """The source's QEMU ends when all is sent; the target may be about to say that it is whole."""
    stage = Stage(World(duration_s=None), POST_COPY)
    stage.world.post_copy_s = 10_000.0

    async def main() -> AttemptRecord:
        task = asyncio.create_task((agent := stage.agent()).run())
        while not agent.record.post_copy:
            await asyncio.sleep(0.1)
        assert stage.world.source is not None
        stage.world.put("source", replace(stage.world.source, state=DomainState.SHUTOFF, reason="crashed"))
        stage.world.break_now(keep=True)
        return await task

    record = run(main())
    assert record.cause is Cause.POST_COPY_FAILED
    assert "the source's half of the guest is gone" in record.reason
    assert (stage.hooks.released, stage.world.running) == (0, ["target"])


def test_a_half_that_cannot_be_ended_is_told_and_tried_again() -> None:
    stage = broken("target", DomainState.SHUTOFF)
    stage.world.errors["source.destroy"] = [HypervisorUnavailable("gone"), HypervisorUnavailable("gone")]

    async def main() -> AttemptRecord:
        record: AttemptRecord | None = None
        for _ in range(3):
            try:
                return await stage.agent(record).run()
            except HypervisorUnavailable:
                record = stage.notebook.last
        raise AssertionError("it did not end")

    record = run(main())
    assert (record.cause, nothing_lives(stage)) == (Cause.LOST, True)


# The target ------------------------------------------------------------------------------------------------


def domain(state: DomainState, reason: str) -> DomainRecord:
    return DomainRecord(uuid=UUID, name="default_vm", state=state, reason=reason, persistent=True)


@pytest.mark.parametrize(
    ("record", "ended"),
    [
        (domain(DomainState.RUNNING, "post-copy-failed"), True),
        (domain(DomainState.RUNNING, "post-copy"), True),
        (domain(DomainState.PAUSED, "post-copy-failed"), True),
        (domain(DomainState.PAUSED, "migration"), True),
        (domain(DomainState.SHUTOFF, "crashed"), True),
        (None, True),
        (domain(DomainState.RUNNING, "migrated"), False),
        (domain(DomainState.PAUSED, "user"), False),
    ],
)
def test_what_a_target_discards(record: DomainRecord | None, ended: bool) -> None:
    stage = Stage(World())

    async def scenario() -> None:
        request = PrepareRequest(attempt="attempt-1", source_node="a", vmi="{}", domain_xml="<domain/>")
        await stage.target.prepare(request)
        stage.world.source = None
        stage.world.put("target", record)
        for _ in range(2):
            state = await stage.target.finish("attempt-1", succeeded=False, discard=True)
            assert state.known
            assert (state.domain == "") is ended

    run(scenario())
    assert (stage.world.target is None, stage.hooks.released) == (ended, int(ended))


def test_a_half_that_was_given_up_is_ended_when_libvirt_answers_again() -> None:
    stage = Stage(World())

    async def scenario() -> None:
        request = PrepareRequest(attempt="attempt-1", source_node="a", vmi="{}", domain_xml="<domain/>")
        await stage.target.prepare(request)
        stage.world.source = None
        stage.world.put("target", domain(DomainState.RUNNING, "post-copy-failed"))
        stage.world.errors["target.domain"] = [HypervisorUnavailable("it stands still")]
        with pytest.raises(HypervisorUnavailable):
            await stage.target.finish("attempt-1", succeeded=False, discard=True)
        assert stage.incoming.kept["attempt-1"].discarded
        await asyncio.sleep(200)
        await stage.target.sweep()

    run(scenario())
    assert (stage.world.target, stage.hooks.released) == (None, 1)


def test_a_guest_that_was_deleted_in_halves_is_ended_on_the_target_as_soon_as_that_answers() -> None:
    stage = Stage(World(duration_s=None, fault="post-copy"), POST_COPY)
    stage.world.resume_errors = [UNREACHABLE] * 1000
    stage.wire.down = {"finish"}

    async def main() -> None:
        task = asyncio.create_task((agent := stage.agent()).run())
        while not agent.record.interrupted:
            await asyncio.sleep(1)
        await agent.cancel()
        record = replace_discarded(await task)
        telling = asyncio.create_task(remind(record, stage.wire))
        await asyncio.sleep(30)
        assert stage.world.target is not None
        stage.wire.down = set()
        await telling

    run(main())
    assert (stage.world.target, stage.hooks.released, stage.hooks.adopted) == (None, 1, 0)


def replace_discarded(record: AttemptRecord) -> AttemptRecord:
    assert record.cause is Cause.POST_COPY_FAILED
    return msgspec.structs.replace(record, untold=True, discarded=True)
