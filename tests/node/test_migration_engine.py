# SPDX-License-Identifier: Apache-2.0
"""The migration engine, source and target, between two real libvirtds, without agents around it."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path

import pytest
from migration_pair import moving, state_of

from launcher.hypervisor.port import DomainState
from launcher.lab.node import Node
from launcher.migration.attempt import Cause, Phase, decode
from launcher.migration.options import Options, RampOptions
from launcher.units import MIB

pytestmark = pytest.mark.node

# The guest keeps between 0.5 and 15 MiB dirty: at 4 MiB/s a pass takes at least an eighth of a second.
CAP = 4 * MIB
SLOW = RampOptions(initial_ms=20, steps=4, start_iteration=2, cooldown_s=1)
NEVER = Options(bandwidth_bps=CAP, max_downtime_ms=20, ramp=SLOW)


MOVED = (None, DomainState.RUNNING)
STAYED = (DomainState.RUNNING, None)


async def test_the_ramp_moves_a_busy_guest(node_a: Node, node_b: Node, tmp_path: Path) -> None:
    options = Options(bandwidth_bps=CAP, max_downtime_ms=10_000, ramp=SLOW)
    async with moving(node_a, node_b, tmp_path, options) as pair:
        record = await asyncio.wait_for(pair.engine().run(), 90)
        assert (record.phase, record.confirmed) == (Phase.SUCCEEDED, True), record.reason
        assert await pair.states() == MOVED
        assert pair.hooks.adopted == [DomainState.RUNNING]
        report = record.report
        assert report is not None
        assert report.source == "libvirt"
        assert (report.iterations or 0) >= 2
        assert 0 < (report.downtime_ms or 0) < (report.total_ms or 0)
        assert 0 < (report.predicted_downtime_ms or 0) < (report.total_ms or 0)
        limits = [action for _, action, _ in report.steps if action.startswith("max_downtime")]
        assert limits[:2] == ["max_downtime 20 ms", "max_downtime 2515 ms"]
        assert report.steps[0][0] < 0.5, "the first limit is there when the job begins"
        running = [look for look in pair.looks if look.phase == "Running" and look.remaining]
        assert all(b.elapsed_s >= a.elapsed_s for a, b in itertools.pairwise(running))
        assert any(0 < look.bandwidth_bps < 2 * CAP for look in running)


async def test_a_cancelled_migration_leaves_the_guest(node_a: Node, node_b: Node, tmp_path: Path) -> None:
    async with moving(node_a, node_b, tmp_path, NEVER) as pair:
        engine = pair.engine()
        task = asyncio.create_task(engine.run())
        await pair.until_pass(2)
        await engine.cancel()
        record = await asyncio.wait_for(task, 30)
        assert (record.phase, record.cause) == (Phase.FAILED, Cause.CANCELLED)
        assert await pair.states() == STAYED
        assert pair.hooks.released == 1


async def test_a_killed_engine_is_taken_up_with_its_policy(
    node_a: Node, node_b: Node, tmp_path: Path
) -> None:
    options = Options(bandwidth_bps=CAP, completion_timeout_per_gib_s=7, max_downtime_ms=20, ramp=SLOW)
    async with moving(node_a, node_b, tmp_path, options) as pair:
        task = asyncio.create_task(pair.engine().run())
        await pair.until_pass(2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        record = await asyncio.wait_for(pair.engine(decode(pair.journal[-1])).run(), 60)
        assert (record.phase, record.cause) == (Phase.FAILED, Cause.COMPLETION_TIMEOUT), record.reason
        assert [step.action for step in record.steps] == ["max_downtime 20 ms", "abort"]
        assert 7 <= record.steps[-1].t < 11
        assert await pair.states() == STAYED


async def test_an_end_that_nobody_saw_is_found_on_both_sides(
    node_a: Node, node_b: Node, tmp_path: Path
) -> None:
    async with moving(node_a, node_b, tmp_path, NEVER) as pair:
        task = asyncio.create_task(pair.engine().run())
        await pair.until_pass(2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await pair.source.set_max_downtime(pair.uuid, 5000)
        async with asyncio.timeout(30):
            while await state_of(pair.source, pair.uuid) is not DomainState.SHUTOFF:
                await asyncio.sleep(0.1)
        record = await asyncio.wait_for(pair.engine(decode(pair.journal[-1])).run(), 60)
        assert (record.phase, record.confirmed) == (Phase.SUCCEEDED, True), record.reason
        assert await pair.states() == MOVED
        assert record.report is not None
        assert (record.report.source, (record.report.downtime_ms or 0) > 0) == ("libvirt", True)


@pytest.mark.parametrize("post_copy", [True, False], ids=["post-copy", "stop"])
async def test_consent_ends_what_does_not_converge(
    node_a: Node, node_b: Node, tmp_path: Path, post_copy: bool
) -> None:
    options = Options(
        bandwidth_bps=CAP,
        completion_timeout_per_gib_s=8,
        max_downtime_ms=20,
        ramp=SLOW,
        allow_post_copy=post_copy,
        allow_workload_disruption=True,
    )
    async with moving(node_a, node_b, tmp_path, options) as pair:
        record = await asyncio.wait_for(pair.engine().run(), 60)
        assert record.phase is Phase.SUCCEEDED, record.reason
        assert record.post_copy is post_copy, record.steps
        forced = [step.action for step in record.steps if step.action == "max_downtime 2000000 ms"]
        assert len(forced) == (0 if post_copy else 1)
        assert await pair.states() == MOVED


async def test_a_guest_that_is_on_both_sides_is_left_to_a_person(
    node_a: Node, node_b: Node, tmp_path: Path
) -> None:
    async with moving(node_a, node_b, tmp_path, NEVER) as pair:
        xml = await pair.source.domain_xml(pair.uuid, migratable=True)
        await pair.target.define(xml)
        await pair.target.create(pair.uuid, paused=True)
        record = await asyncio.wait_for(pair.engine().run(), 60)
        assert (record.phase, record.cause) == (Phase.FAILED, Cause.CONFLICT), record.reason
        assert await pair.states() == (DomainState.RUNNING, DomainState.PAUSED), "nothing was touched"
        assert pair.hooks.adopted == []
