# SPDX-License-Identifier: Apache-2.0
"""The second attempt of a migration: what calls for one, over which network, and no third."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from migration_stage import Stage, migrate
from migration_world import World, run

from launcher.errors import HypervisorError
from launcher.migration.again import again
from launcher.migration.attempt import AttemptRecord, Cause, Phase, reopened
from launcher.migration.options import Options
from launcher.migration.reasons import cause_of

AT = "2026-01-01T00:00:00Z"
NETWORKS = ("", "fast", "slow")


def restarting(stage: Stage, *, times: int = 1) -> None:
    """The source's libvirtd ends in the third pass, so often."""
    left = [times]

    async def kill(_call: str) -> None:
        if stage.world.iteration == 3 and stage.world.began is not None and left[0]:
            left[0] -= 1
            stage.world.kill_libvirtd()

    stage.world.hook = kill


async def to_the_end(stage: Stage, networks: tuple[str, ...] = NETWORKS) -> AttemptRecord:
    """As the agent does it: each end that calls for it is the begin of another attempt."""
    record = await stage.agent().run()
    while (second := again(record, networks, at=AT)) is not None:
        record = await stage.agent(second).run()
    return record


def test_a_restart_of_libvirtd_costs_time_and_not_the_migration() -> None:
    stage = Stage(World())
    restarting(stage)
    record = run(to_the_end(stage))
    assert (record.phase, record.confirmed, stage.world.running) == (Phase.SUCCEEDED, True, ["target"])
    assert record.tokens == ("attempt-1", "attempt-1-2")
    assert record.report is not None
    (first,) = record.report.earlier
    assert (first.succeeded, first.reason) == (False, "the migration was gone when the agent looked again")
    phases = [told.phase.value for told in record.transitions]
    assert phases == [
        *("Pending", "PreparingTarget", "TargetReady", "Running"),
        *("PreparingTarget", "TargetReady", "Running", "Succeeded"),
    ]
    steps = [step.reason for step in record.steps if step.action == "second attempt"]
    assert steps == ["interrupted: the migration was gone when the agent looked again"]
    assert stage.hooks.adopted == 1
    assert stage.hooks.reserved - stage.hooks.released == 1


def test_it_is_tried_twice_and_no_more() -> None:
    stage = Stage(World())
    restarting(stage, times=9)
    record = run(to_the_end(stage))
    assert (record.phase, record.cause, stage.world.running) == (Phase.FAILED, Cause.INTERRUPTED, ["source"])
    assert stage.world.calls.count("source.migrate") == 2
    assert record.report is not None
    assert len(record.report.earlier) == 1
    assert stage.hooks.reserved == stage.hooks.released == 2


def test_deadlines_and_the_state_of_the_rules_are_the_second_attempts_own() -> None:
    stage = Stage(World(duration_s=None), Options(completion_timeout_per_gib_s=20))
    restarting(stage)
    record = run(to_the_end(stage))
    assert record.cause is Cause.COMPLETION_TIMEOUT
    (abort,) = [step for step in record.steps if step.action == "abort"]
    assert 20 <= abort.t < 22
    assert record.report is not None
    assert (record.report.earlier[0].total_ms or 0) < 8000


def test_the_second_begins_only_when_the_target_has_nothing_of_the_first() -> None:
    stage = Stage(World())
    restarting(stage)

    async def scenario() -> AttemptRecord:
        first = await stage.agent().run()
        second = again(msgspec.structs.replace(first, untold=True), NETWORKS, at=AT)
        assert second is not None
        stage.wire.down.add("finish")
        task = asyncio.create_task(stage.agent(second).run())
        await asyncio.sleep(10)
        assert stage.world.calls.count("peer.prepare") == 1
        stage.wire.down.clear()
        return await task

    record = run(scenario())
    assert (record.phase, record.untold) == (Phase.SUCCEEDED, False)


@pytest.mark.parametrize("cancelled", [False, True])
def test_a_target_that_stays_away_or_a_request_to_cancel_ends_the_second_before_it_begins(
    cancelled: bool,
) -> None:
    stage = Stage(World())
    restarting(stage)

    async def scenario() -> AttemptRecord:
        first = await stage.agent().run()
        second = again(msgspec.structs.replace(first, untold=True), NETWORKS, at=AT)
        stage.wire.down.add("finish")
        agent = stage.agent(second)
        task = asyncio.create_task(agent.run())
        await asyncio.sleep(5)
        if cancelled:
            await agent.cancel()
        return await task

    record = run(scenario())
    assert record.cause is (Cause.CANCELLED if cancelled else Cause.INTERRUPTED)
    assert record.untold, "it is told later"
    assert stage.world.calls.count("source.migrate") == 1
    assert stage.world.running == ["source"]


@pytest.mark.parametrize(
    ("used", "networks", "network"),
    [
        ("", ("", "fast", "slow"), "fast"),
        ("slow", ("", "fast", "slow"), ""),
        ("", ("",), None),
    ],
)
def test_after_a_dead_link_another_network_is_taken(
    used: str, networks: tuple[str, ...], network: str | None
) -> None:
    second = again(failed(Cause.LINK, Options(network=used)), networks, at=AT)
    if network is None:
        assert second is None
        return
    assert second is not None
    assert second.network == network
    assert second.steps[-1].reason.endswith(f"over the network {network or 'migration.address'}")


def test_the_other_network_is_what_the_target_is_asked_for() -> None:
    stage = Stage(World())
    asked: list[str] = []
    prepare = stage.target.prepare

    async def noted(request: object) -> object:
        asked.append(request.network)  # type: ignore[attr-defined]
        return await prepare(request)  # type: ignore[arg-type]

    stage.target.prepare = noted  # type: ignore[method-assign,assignment]
    link = [HypervisorError("unable to connect to server at 'b:16514': No route to host")]
    stage.world.errors["source.migrate"] = list(link)
    record = run(to_the_end(stage))
    assert (record.phase, asked) == (Phase.SUCCEEDED, ["", "fast"])


@pytest.mark.parametrize(
    "changes",
    [
        {"cause": Cause.HYPERVISOR},
        {"cause": Cause.CANCELLED, "cancel": True},
        {"cancel": True},
        {"post_copy": True},
        {"phase": Phase.SUCCEEDED},
        {"phase": Phase.RUNNING, "report": None},
    ],
)
def test_nothing_else_is_tried_again(changes: dict[str, object]) -> None:
    record = msgspec.structs.replace(failed(Cause.INTERRUPTED), **changes)
    assert again(record, NETWORKS, at=AT) is None


def test_what_somebody_had_looked_at_again_is_not_begun_anew() -> None:
    record = reopened(failed(Cause.UNRESOLVED), AT)
    report = failed(Cause.INTERRUPTED).report
    ended = msgspec.structs.replace(record, phase=Phase.FAILED, cause=Cause.INTERRUPTED, report=report)
    assert again(ended, NETWORKS, at=AT) is None


def test_nor_what_another_control_plane_expects_no_more() -> None:
    record = failed(Cause.INTERRUPTED)
    sent = msgspec.structs.replace(record.outgoing, migration_id="shared")
    assert again(msgspec.structs.replace(record, outgoing=sent), NETWORKS, at=AT) is None


@pytest.mark.parametrize(
    ("said", "still_s", "cause"),
    [
        ("internal error: client socket is closed", 0.4, Cause.INTERRUPTED),
        ("internal error: client socket is closed", 3.0, Cause.LINK),
        ("End of file while reading data: Input/output error", 0.0, Cause.INTERRUPTED),
        ("unable to connect to server at 'b:16514': No route to host", 0.0, Cause.LINK),
        ("internal error: qemu unexpectedly closed the monitor", 5.0, Cause.HYPERVISOR),
    ],
)
def test_what_libvirt_says_has_a_cause(said: str, still_s: float, cause: Cause) -> None:
    assert cause_of(said, still_s=still_s) is cause


def failed(cause: Cause, options: Options | None = None) -> AttemptRecord:
    stage = Stage(World(fault="stream"), options)
    return msgspec.structs.replace(migrate(stage), cause=cause)
