# SPDX-License-Identifier: Apache-2.0
"""Post-copy that is interrupted: put together again, given up by somebody, never thrown away."""

from __future__ import annotations

import asyncio

import pytest
from migration_stage import Stage, migrate
from migration_world import World, run

from launcher.errors import HostUnsupported, HypervisorError
from launcher.hypervisor.port import DomainState, MigrateFlag
from launcher.migration.attempt import AttemptRecord, Cause, Phase, reopened
from launcher.migration.options import Options
from launcher.migration.recovery import LIMIT_S

POST_COPY = Options(allow_post_copy=True, allow_workload_disruption=True)
UNREACHABLE = "unable to connect to server at 'b:49152': No route to host"
EOF_ERROR = "End of file while reading data: Input/output error"


def broken(*resume_errors: str) -> Stage:
    stage = Stage(World(duration_s=None, fault="post-copy"), POST_COPY)
    stage.world.resume_errors = list(resume_errors)
    return stage


def both_kept(stage: Stage) -> bool:
    source, target = stage.world.source, stage.world.target
    assert source is not None
    assert target is not None
    assert (stage.hooks.released, stage.hooks.adopted) == (0, 0)
    return source.state is DomainState.PAUSED and target.state is DomainState.RUNNING


@pytest.mark.parametrize("tries", [1, 3, 8])
def test_it_is_resumed_until_it_ends_well(tries: int) -> None:
    stage = broken(*[UNREACHABLE] * (tries - 1))
    record = migrate(stage)
    assert (record.phase, record.confirmed, record.interrupted) == (Phase.SUCCEEDED, True, "")
    assert record.resumes == tries
    assert stage.world.running == ["target"]
    assert stage.world.params is not None
    assert {MigrateFlag.POSTCOPY, MigrateFlag.POSTCOPY_RESUME} <= stage.world.params.flags
    assert record.report is not None
    assert record.report.post_copy


def test_it_breaks_again_and_is_resumed_again() -> None:
    stage = broken()
    original = stage.world._resumed

    async def break_once() -> None:
        stage.world._resumed = original  # type: ignore[method-assign]
        stage.world.began = asyncio.get_running_loop().time()
        await stage.world._in_post_copy()  # the fault is still there

    stage.world._resumed = break_once  # type: ignore[method-assign]
    record = migrate(stage)
    assert (record.phase, record.resumes) == (Phase.SUCCEEDED, 2)


def test_without_an_end_both_halves_are_kept_and_the_report_says_so() -> None:
    stage = broken(*[UNREACHABLE] * 1000)
    record = migrate(stage)
    assert (record.phase, record.cause) == (Phase.FAILED, Cause.POST_COPY_FAILED)
    assert both_kept(stage)
    assert f"not resumed within {LIMIT_S:.0f} s" in record.reason
    assert 100 < record.resumes < 200, "with back-off"


def test_what_was_given_up_can_be_tried_again_by_hand() -> None:
    stage = broken(EOF_ERROR)
    stage.hooks.reopen_error = HostUnsupported("a monitor to recover by", "the guest has only libvirt's")
    given_up = migrate(stage)
    assert "the guest has only libvirt's; bring libvirt there to another version" in given_up.reason
    assert both_kept(stage)
    assert given_up.phase is Phase.FAILED

    async def main() -> AttemptRecord:
        return await stage.agent(reopened(given_up, "later")).run()

    record = run(main())
    assert (record.phase, record.cause, record.resumes) == (Phase.SUCCEEDED, Cause.NONE, 2)
    phases = [transition.phase for transition in record.transitions]
    assert phases[-4:] == [Phase.RUNNING, Phase.FAILED, Phase.RUNNING, Phase.SUCCEEDED]
    assert stage.world.running == ["target"]


def test_a_pause_between_two_tries_ends_when_somebody_asks() -> None:
    stage = broken(*[UNREACHABLE] * 8)

    async def main() -> float:
        engine = stage.agent()
        task = asyncio.create_task(engine.run())
        while engine.record.resumes < 7:
            await asyncio.sleep(1)
        before = stage.clock.monotonic()
        while engine.record.resumes < 8:
            engine.nudge()
            await asyncio.sleep(0.1)
        task.cancel()
        return stage.clock.monotonic() - before

    assert run(main()) < 2


def test_a_target_that_cannot_be_asked_is_waited_for() -> None:
    stage = broken()

    async def main() -> AttemptRecord:
        async def cut(label: str) -> None:
            if label == "source.start_postcopy":
                stage.wire.down |= {"state", "finish"}
                asyncio.get_running_loop().call_later(300, stage.wire.down.clear)

        stage.world.hook = cut
        return await stage.agent().run()

    record = run(main())
    assert (record.phase, record.resumes, stage.world.running) == (Phase.SUCCEEDED, 1, ["target"])


def test_a_daemon_that_dies_of_the_resume_is_asked_once_then_qemu_is() -> None:
    stage = broken(*[EOF_ERROR] * 50)
    record = migrate(stage)
    assert (record.phase, record.resumes, record.crashes) == (Phase.SUCCEEDED, 2, 1)
    assert [s.action for s in record.steps if "resume" in s.action] == [
        "resume post-copy",
        "resume post-copy by QEMU",
    ]
    assert stage.world.running == ["target"]
    assert len(stage.hooks.reopened) == 1


HANGS = "cannot acquire state change lock (held by monitor=remoteDispatchDomainMigrateFinish3Params)"


@pytest.mark.parametrize("monitor", [True, False])
def test_a_daemon_that_hangs_is_gone_around_where_that_can_be(monitor: bool) -> None:
    stage = broken(*[HANGS] * 3)
    if not monitor:
        stage.hooks.reopen_error = HostUnsupported("a monitor to recover by", "the guest has only libvirt's")
    record = migrate(stage)
    assert (record.phase, record.crashes) == (Phase.SUCCEEDED, 0), record.reason
    assert record.resumes == (2 if monitor else 4), "without one it is asked until it answers"
    assert stage.hooks.cuts >= 1


def test_after_a_restart_the_daemon_is_not_asked_again() -> None:
    stage = broken(*[EOF_ERROR] * 50)
    stage.wire.down.add("reopen")

    async def main() -> AttemptRecord:
        engine = stage.agent()
        task = asyncio.create_task(engine.run())
        while not engine.record.crashes:
            await asyncio.sleep(0.1)
        task.cancel()
        await asyncio.wait({task})
        stage.wire.down.clear()
        return await stage.agent(stage.notebook.last).run()

    record = run(main())
    assert (record.phase, record.crashes) == (Phase.SUCCEEDED, 1)
    assert len(stage.world.resume_errors) == 49


def test_a_daemon_that_dies_of_everything_is_left_alone_and_the_operator_is_told() -> None:
    stage = broken(EOF_ERROR)
    stage.hooks.reopen_error = HypervisorError(EOF_ERROR)
    record = migrate(stage)
    assert (record.cause, record.crashes) == (Cause.POST_COPY_FAILED, 2)
    assert "libvirtd ended 2 times" in record.reason
    assert both_kept(stage)


@pytest.mark.parametrize(
    "words",
    [
        "QEMU reports migration is still running",
        "migration of domain default_vm is being actively monitored by another thread",
        "cannot acquire state change lock (held by monitor=remoteDispatchDomainMigrateFinish3Params)",
    ],
)
def test_a_side_that_does_not_know_that_its_connection_is_dead_is_told(words: str) -> None:
    stage = broken(*[words] * 6)
    record = migrate(stage)
    assert record.phase is Phase.SUCCEEDED
    assert stage.hooks.cuts >= 1
    assert "cut the stream" in [step.action for step in record.steps]


def test_a_stream_that_flows_is_not_cut() -> None:
    stage = broken(*["QEMU reports migration is still running"] * 6)
    stage.world.flows = True

    async def main() -> AttemptRecord:
        async def flow(label: str) -> None:
            if label == "source.job_stats":
                stage.world.began = asyncio.get_running_loop().time() - 100 - 10 * len(stage.world.calls)

        stage.world.hook = flow
        return await stage.agent().run()

    record = run(main())
    assert (record.phase, stage.hooks.cuts) == (Phase.SUCCEEDED, 0)


def test_an_operator_can_give_up() -> None:
    stage = broken(*[UNREACHABLE] * 1000)

    async def main() -> AttemptRecord:
        engine = stage.agent()
        task = asyncio.create_task(engine.run())
        while not engine.record.resumes:
            await asyncio.sleep(1)
        assert await engine.cancel() == "accepted"
        return await task

    record = run(main())
    assert record.cause is Cause.POST_COPY_FAILED
    assert record.reason.startswith("post-copy failed, both halves are kept: given up on request")
    assert both_kept(stage)


def test_a_cancel_in_healthy_post_copy_is_too_late_and_does_not_end_a_later_recovery() -> None:
    stage = broken()
    stage.world.post_copy_s = 5.0

    async def main() -> AttemptRecord:
        engine = stage.agent()
        task = asyncio.create_task(engine.run())
        while not engine.record.post_copy:
            await asyncio.sleep(0.1)
        assert await engine.cancel() == "too-late"
        return await task

    assert run(main()).phase is Phase.SUCCEEDED


def test_an_agent_that_restarts_goes_on_resuming() -> None:
    stage = broken(*[UNREACHABLE] * 5)

    async def main() -> AttemptRecord:
        engine = stage.agent()
        task = asyncio.create_task(engine.run())
        while engine.record.resumes < 2:
            await asyncio.sleep(0.1)
        task.cancel()
        await asyncio.wait({task})
        return await stage.agent(stage.notebook.last).run()

    record = run(main())
    assert (record.phase, record.resumes) == (Phase.SUCCEEDED, 6)


def test_a_dead_link_in_post_copy_is_cut_and_resumed() -> None:
    stage = Stage(World(duration_s=None), POST_COPY)
    stage.world.post_copy_s = 10_000.0

    async def main() -> AttemptRecord:
        engine = stage.agent()
        task = asyncio.create_task(engine.run())
        while not engine.record.post_copy:
            await asyncio.sleep(0.5)
        stage.world.moving = False
        while "source.pause_post_copy" not in stage.world.calls:
            await asyncio.sleep(0.5)
        stage.world.moving = True
        stage.world.post_copy_s = 5.0
        return await task

    record = run(main())
    assert (record.phase, record.resumes) == (Phase.SUCCEEDED, 1)
    assert "interrupt post-copy" in [s.action for s in record.steps]
