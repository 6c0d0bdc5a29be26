# SPDX-License-Identifier: Apache-2.0
"""One outgoing migration from its first phase to its last, with everything that can go wrong in between."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import replace

import msgspec
import pytest
from migration_stage import Stage, migrate
from migration_world import UUID, World, run

from launcher.errors import HypervisorError, StorageError, TimedOut
from launcher.hypervisor.port import DomainRecord, DomainState, MigrateFlag
from launcher.migration.attempt import AttemptRecord, Cause, Phase
from launcher.migration.options import Options
from launcher.migration.peer import PrepareReply, PrepareRequest
from launcher.migration.reservation import Check

POST_COPY = Options(allow_post_copy=True, allow_workload_disruption=True, completion_timeout_per_gib_s=20)
PAUSE = Options(allow_workload_disruption=True, completion_timeout_per_gib_s=20)
SHORT = Options(completion_timeout_per_gib_s=20)
STUCK = Options(progress_timeout_s=10)


def phases(record: AttemptRecord) -> list[str]:
    return [t.phase.value for t in record.transitions]


def test_the_guest_moves_and_every_phase_is_stamped() -> None:
    stage = Stage(World())
    record = migrate(stage)
    assert phases(record) == ["Pending", "PreparingTarget", "TargetReady", "Running", "Succeeded"]
    assert all(t.at for t in record.transitions)
    assert (record.confirmed, record.cause, stage.world.running) == (True, Cause.NONE, ["target"])
    assert stage.world.source is None, "the source forgot the domain"
    assert stage.hooks.adopted == 1
    assert stage.notebook.last == record


def test_what_is_remembered_of_a_migration_that_succeeded_holds_no_documents() -> None:
    stage = Stage(World())
    reply = migrate(stage).reply
    assert reply is not None
    assert (reply.node, reply.destination_xml, reply.persistent_xml) == ("b", "", "")
    assert [(record.adopted, record.reservation) for record in stage.target.records] == [(True, None)]


def test_the_report_has_libvirts_numbers() -> None:
    report = migrate(Stage(World())).report
    assert report is not None
    assert (report.succeeded, report.source, report.downtime_ms, report.setup_ms) == (True, "libvirt", 123, 9)
    assert report.iterations == 6
    assert report.steps[0][1] == "max_downtime 150 ms"


def test_the_first_limit_is_in_force_when_the_migrate_call_begins() -> None:
    stage = Stage(World(duration_s=0.1))
    migrate(stage)
    assert stage.world.limits[:2] == [("set", 150), ("at migrate", 150)]


def test_the_ramp_runs_while_passes_go_on() -> None:
    stage = Stage(World(duration_s=35))
    migrate(stage)
    assert [ms for what, ms in stage.world.limits if what == "set"] == [150, 257, 364, 471]


def test_progress_is_told_at_each_look_with_what_the_policy_did() -> None:
    stage = Stage(World())
    migrate(stage)
    running = [p for p in stage.progress if p.phase == "Running"]
    assert len(running) > 15
    assert running[-1].iteration == 6
    assert running[-1].bandwidth_bps == pytest.approx(40_000_000, rel=0.01)
    assert [p.phase for p in stage.progress if p.phase != "Running"][-1] == "Succeeded"


def test_passes_are_looked_at_at_once_and_do_not_starve_the_poll() -> None:
    stage = Stage(World(pass_s=0.1, duration_s=4))
    migrate(stage)
    looks = [p.elapsed_s for p in stage.progress if p.phase == "Running"]
    assert len(looks) >= 30, "about one for each pass"
    assert max(b - a for a, b in itertools.pairwise(looks)) < 0.5


def test_flags_say_what_the_options_allow() -> None:
    stage = Stage(World(), msgspec.structs.replace(POST_COPY, allow_auto_converge=True, bandwidth_bps=1000))
    migrate(stage)
    params = stage.world.params
    assert params is not None
    assert params.flags == {
        MigrateFlag.LIVE,
        MigrateFlag.PEER2PEER,
        MigrateFlag.PERSIST_DEST,
        MigrateFlag.AUTO_CONVERGE,
        MigrateFlag.POSTCOPY,
    }
    assert params.migrate_uri == "tcp://10.0.0.2:49152"
    assert params.bandwidth_mib == 1, "a tiny cap must not become none"


def test_all_findings_of_the_target_come_together_and_nothing_is_left() -> None:
    async def two(request: PrepareRequest) -> tuple[str, ...]:
        return ("memory: 1 GiB missing", "the name is taken")

    async def hangs(request: PrepareRequest) -> tuple[str, ...]:
        await asyncio.sleep(3600)
        return ()

    checks = (Check(name="resources", run=two), Check(name="disks", run=hangs))
    stage = Stage(World(), checks=checks)
    record = migrate(stage)
    assert record.cause is Cause.REFUSED
    assert "1 GiB missing; the name is taken; disks: the check of disks took longer" in record.reason
    assert (stage.hooks.reserved, stage.world.params, stage.world.running) == (0, None, ["source"])
    assert stage.target.records == ()


def test_a_target_that_is_away_for_a_moment_is_asked_again() -> None:
    stage = Stage(World())
    stage.wire.down.add("prepare")

    async def back(call: str) -> None:
        if stage.world.calls.count("peer.prepare") == 2:
            stage.wire.down.clear()

    stage.world.hook = back
    assert migrate(stage).phase is Phase.SUCCEEDED


def test_a_target_that_stays_away_ends_the_attempt() -> None:
    stage = Stage(World())
    stage.wire.down.update({"prepare", "finish"})
    record = migrate(stage)
    assert (record.cause, stage.world.running) == (Cause.TARGET_UNREACHABLE, ["source"])
    assert 25 <= stage.world.calls.count("peer.prepare") <= 31, "once a second for half a minute"


def test_a_migration_that_waits_for_a_target_that_is_away_can_be_cancelled() -> None:
    stage = Stage(World())
    stage.wire.down.add("prepare")

    async def scenario() -> AttemptRecord:
        engine = stage.agent()
        task = asyncio.create_task(engine.run())
        await asyncio.sleep(5)
        began = asyncio.get_running_loop().time()
        await engine.cancel()
        record = await task
        assert asyncio.get_running_loop().time() - began < 1
        return record

    assert run(scenario()).cause is Cause.CANCELLED


def test_a_guest_that_its_user_paused_stays_paused() -> None:
    world = World()
    world.source = DomainRecord(
        uuid=UUID, name="default_vm", state=DomainState.PAUSED, reason="user", persistent=True
    )
    stage = Stage(world, POST_COPY)
    record = migrate(stage)
    assert record.phase is Phase.SUCCEEDED
    assert world.target is not None
    assert world.target.state is DomainState.PAUSED
    assert "source.undefine" in world.calls
    assert world.params is not None
    assert MigrateFlag.PAUSED in world.params.flags
    assert MigrateFlag.POSTCOPY not in world.params.flags


def test_a_guest_stopped_by_a_disk_error_is_not_moved() -> None:
    world = World()
    assert world.source is not None
    world.source = replace(world.source, state=DomainState.PAUSED, reason="ioerror")
    record = migrate(Stage(world))
    assert record.cause is Cause.SOURCE_UNABLE
    assert "ioerror" in record.reason


def test_failing_set_calls_are_retried_and_reported() -> None:
    stage = Stage(World())
    stage.world.errors["source.set_max_downtime"] = [HypervisorError("not now")] * 3
    record = migrate(stage)
    assert record.phase is Phase.SUCCEEDED
    assert ("set", 150) in stage.world.limits
    assert [s.action for s in record.steps[:2]] == ["max_downtime 150 ms failed", "max_downtime 150 ms"]


def test_lost_events_cost_nothing_but_speed() -> None:
    stage = Stage(World())
    stage.world.events_lost = True
    record = migrate(stage)
    assert record.phase is Phase.SUCCEEDED
    assert record.report is not None
    assert (record.report.source, record.report.downtime_ms) == ("libvirt", 123)


def test_statistics_that_fail_do_not_end_the_watch() -> None:
    stage = Stage(World())
    stage.world.errors["source.job_stats"] = [TimedOut("slow")] * 5
    assert migrate(stage).phase is Phase.SUCCEEDED


def test_a_journal_that_fails_stops_before_the_job_but_not_during_it() -> None:
    stage = Stage(World())
    stage.notebook.fail = StorageError("", "disk full")
    with pytest.raises(StorageError):
        migrate(stage)
    assert stage.world.params is None

    stage = Stage(World())

    async def full(call: str) -> None:
        if call == "source.migrate":
            stage.notebook.fail = StorageError("", "disk full")

    stage.world.hook = full
    assert migrate(stage).phase is Phase.SUCCEEDED


# Convergence ---------------------------------------------------------------------------------------------


def test_completion_timeout_aborts_and_the_guest_stays() -> None:
    stage = Stage(World(duration_s=None), SHORT)
    record = migrate(stage)
    assert (record.cause, stage.world.running) == (Cause.COMPLETION_TIMEOUT, ["source"])
    assert (stage.world.target, stage.hooks.released) == (None, 1)
    assert record.report is not None
    assert record.report.steps[-1][1] == "abort"


def test_progress_timeout_aborts_a_migration_that_moves_no_data() -> None:
    stage = Stage(World(duration_s=None), STUCK)
    stage.world.moving = False
    record = migrate(stage)
    assert record.cause is Cause.PROGRESS_TIMEOUT
    assert "no progress for 10 s" in record.reason


def test_an_abort_that_fails_is_tried_again() -> None:
    stage = Stage(World(duration_s=None), SHORT)
    stage.world.errors["source.abort_job"] = [HypervisorError("busy"), TimedOut("slow")]
    record = migrate(stage)
    assert (record.cause, stage.world.running) == (Cause.COMPLETION_TIMEOUT, ["source"])
    assert stage.world.calls.count("source.abort_job") == 3


def test_a_busy_target_is_waited_for() -> None:
    stage = Stage(World())
    busy = PrepareReply(findings=("this node takes 2 incoming migrations at a time",), busy=True)
    asked: list[float] = []
    prepare = stage.wire.prepare

    async def at_last(request: PrepareRequest) -> PrepareReply:
        asked.append(stage.clock.monotonic())
        return busy if len(asked) < 5 else await prepare(request)

    stage.wire.prepare = at_last  # type: ignore[method-assign]
    assert migrate(stage).phase is Phase.SUCCEEDED
    assert 10 < asked[-1] - asked[0] < 20
    assert any("2 incoming" in p.note for p in stage.progress)


def test_a_migration_that_waits_for_a_busy_target_can_be_cancelled() -> None:
    stage = Stage(World())

    async def always(request: PrepareRequest) -> PrepareReply:
        return PrepareReply(findings=("full",), busy=True)

    stage.wire.prepare = always  # type: ignore[method-assign]

    async def main() -> AttemptRecord:
        engine = stage.agent()
        task = asyncio.create_task(engine.run())
        await asyncio.sleep(20)
        await engine.cancel()
        return await task

    record = run(main())
    assert (record.cause, stage.world.calls.count("source.migrate")) == (Cause.CANCELLED, 0)


def test_post_copy_when_the_completion_timeout_passes() -> None:
    stage = Stage(World(duration_s=None), POST_COPY)
    record = migrate(stage)
    assert (record.phase, record.post_copy, stage.world.running) == (Phase.SUCCEEDED, True, ["target"])
    assert [s.action for s in record.steps[-2:]] == ["start post-copy", "post-copy active"]
    assert stage.world.calls.count("source.start_postcopy") == 1


def test_post_copy_that_is_over_before_the_next_look_is_noticed() -> None:
    stage = Stage(World(duration_s=None), POST_COPY)
    stage.world.post_copy_s = 0.0
    record = migrate(stage)
    assert (record.phase, record.post_copy) == (Phase.SUCCEEDED, True)


def test_post_copy_that_never_begins_is_not_believed() -> None:
    stage = Stage(World(duration_s=None), POST_COPY)
    stage.world.post_copy_honoured = False
    record = migrate(stage)
    ends = ["start post-copy", "max_downtime 2000000 ms", "pause guest"]
    assert [s.action for s in record.steps if s.action in ends] == ends
    assert (record.phase, record.post_copy, record.suspended) == (Phase.SUCCEEDED, False, True)
    assert stage.world.running == ["target"]


def test_pausing_the_guest_ends_a_migration_that_does_not_converge() -> None:
    stage = Stage(World(duration_s=None), PAUSE)
    record = migrate(stage)
    assert (record.phase, stage.world.running) == (Phase.SUCCEEDED, ["target"])


def test_a_guest_paused_by_the_engine_runs_again_when_the_migration_fails() -> None:
    stage = Stage(World(duration_s=None, fault="stream"), PAUSE)
    record = migrate(stage)
    assert (record.cause, stage.world.running) == (Cause.HYPERVISOR, ["source"])
    assert "runs again on the source" in record.reason


@pytest.mark.parametrize("left", ["cancelling", "cancelled"])
def test_an_abort_that_does_not_end_the_job_is_helped(left: str) -> None:
    """As QEMU and libvirt do when it comes just when the guest is stopped for the switch."""
    stage = Stage(World(duration_s=None))
    stage.world.misses_abort = left

    async def main() -> tuple[AttemptRecord, float]:
        engine = stage.agent()
        task = asyncio.ensure_future(engine.run())
        await asyncio.sleep(5)
        asked = stage.clock.monotonic()
        await engine.cancel()
        return await task, stage.clock.monotonic() - asked

    record, took_s = run(main())
    assert (record.cause, stage.world.running) == (Cause.CANCELLED, ["source"])
    assert took_s < 4
    assert [step.action for step in record.steps][-2:] == ["abort", "help the abort"]
    assert stage.world.calls.count("source.abort_job") == 1
