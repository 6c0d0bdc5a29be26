# SPDX-License-Identifier: Apache-2.0
"""Faults in the middle of real migrations: each ends with one running guest, or with an honest report."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from migration_pair import Pair, moving

from launcher.hypervisor.port import DomainState
from launcher.lab.lab import Lab
from launcher.lab.node import Node
from launcher.migration.attempt import AttemptRecord, CancelAnswer, Cause, Phase
from launcher.migration.options import Options, RampOptions
from launcher.migration.source import SourceMigration
from launcher.units import MIB

pytestmark = pytest.mark.node

SLOW = RampOptions(initial_ms=20, steps=4, start_iteration=2, cooldown_s=1)
NEVER = Options(bandwidth_bps=4 * MIB, max_downtime_ms=20, ramp=SLOW)
# Post-copy begins 3 s after the first byte; then a slow wire keeps it going for some seconds.
POST_COPY = Options(
    bandwidth_bps=4 * MIB,
    max_downtime_ms=20,
    completion_timeout_per_gib_s=3,
    ramp=SLOW,
    allow_post_copy=True,
    allow_workload_disruption=True,
)
WIRE_MBIT = 12
MOVED = (None, DomainState.RUNNING)
STAYED = (DomainState.RUNNING, None)


@pytest.fixture(scope="module")
def nodes(needs_nodes: None) -> Iterator[tuple[Node, Node]]:
    """Nodes of this module's own: their daemons die here."""
    with Lab(names=("a", "b")) as lab:
        yield lab.node("a"), lab.node("b")


def kill_qemu(node: Node, pair: Pair) -> None:
    name = f"hv-{pair.uuid[:8]}"
    node.run("sh", "-c", f"kill -9 $(cat /run/libvirt/qemu/{name}.pid)")


def bounce_libvirtd(node: Node) -> None:
    node.stop_libvirtd(signal.SIGKILL)
    node.start_libvirtd()


async def ended(task: asyncio.Task[AttemptRecord]) -> AttemptRecord:
    return await asyncio.wait_for(task, 90)


Fault = Callable[[Node, Node, Pair], Awaitable[None]]


async def _target_qemu(a: Node, b: Node, pair: Pair) -> None:
    kill_qemu(b, pair)


async def _source_libvirtd(a: Node, b: Node, pair: Pair) -> None:
    await asyncio.to_thread(bounce_libvirtd, a)


async def _target_libvirtd(a: Node, b: Node, pair: Pair) -> None:
    await asyncio.to_thread(bounce_libvirtd, b)


async def _cable(a: Node, b: Node, pair: Pair) -> None:
    b.set_link(False)
    async with asyncio.timeout(60):
        while pair.looks[-1].phase == "Running":  # until libvirt or QEMU notice
            await asyncio.sleep(0.2)
    b.set_link(True)


async def test_whatever_dies_in_pre_copy_the_guest_goes_on_at_the_source(
    nodes: tuple[Node, Node], tmp_path: Path
) -> None:
    a, b = nodes
    faults: tuple[tuple[Fault, set[Cause]], ...] = (
        (_target_qemu, {Cause.HYPERVISOR}),
        (_source_libvirtd, {Cause.INTERRUPTED}),
        (_target_libvirtd, {Cause.INTERRUPTED}),
        (_cable, {Cause.LINK}),
    )
    async with moving(a, b, tmp_path, NEVER) as pair:
        for fault, causes in faults:
            task = asyncio.create_task(pair.engine().run())
            await pair.until_data()
            await fault(a, b, pair)
            record = await ended(task)
            assert (record.phase, record.cause in causes) == (Phase.FAILED, True), (fault, record)
            assert await pair.states() == STAYED, fault
            assert await pair.writes_on(), fault
        assert pair.hooks.adopted == []
        assert pair.hooks.released == len(faults), "nothing is left on the target"


async def test_a_link_that_is_gone_for_a_moment_is_no_reason_to_stop(
    nodes: tuple[Node, Node], tmp_path: Path
) -> None:
    a, b = nodes
    options = Options(bandwidth_bps=4 * MIB, max_downtime_ms=10_000, ramp=SLOW)
    async with moving(a, b, tmp_path, options) as pair:
        task = asyncio.create_task(pair.engine().run())
        await pair.until_data()
        b.set_link(False)
        await pair.until_stalled(1.2)
        b.set_link(True)
        record = await ended(task)
        assert record.phase is Phase.SUCCEEDED, record.reason
        assert await pair.states() == MOVED
        assert await pair.writes_on()


async def test_a_guest_that_is_killed_mid_way_ends_the_migration_and_stays_dead(
    nodes: tuple[Node, Node], tmp_path: Path
) -> None:
    a, b = nodes
    async with moving(a, b, tmp_path, NEVER) as pair:
        task = asyncio.create_task(pair.engine().run())
        await pair.until_data()
        kill_qemu(a, pair)
        record = await ended(task)
        assert (record.phase, record.cause) == (Phase.FAILED, Cause.GUEST_ENDED), record.reason
        assert await pair.states() == (DomainState.SHUTOFF, None)
        assert pair.hooks.released == 1


async def in_post_copy(pair: Pair) -> tuple[SourceMigration, asyncio.Task[AttemptRecord]]:
    engine = pair.engine()
    task = asyncio.create_task(engine.run())
    await pair.until_post_copy(engine)
    return engine, task


async def test_post_copy_survives_both_libvirtds_and_is_not_cancelled(
    nodes: tuple[Node, Node], tmp_path: Path
) -> None:
    a, b = nodes
    async with moving(a, b, tmp_path, POST_COPY) as pair:
        b.rate(WIRE_MBIT)
        try:
            engine, task = await in_post_copy(pair)
            assert await engine.cancel() is CancelAnswer.TOO_LATE
            await asyncio.to_thread(bounce_libvirtd, a)
            await asyncio.to_thread(bounce_libvirtd, b)
            b.rate(None)
            record = await ended(task)
        finally:
            b.rate(None)
        assert (record.phase, record.confirmed) == (Phase.SUCCEEDED, True), record
        assert "too late" in record.reason
        assert await pair.states() == MOVED
        assert await pair.writes_on()


async def test_post_copy_over_a_link_that_was_cut_is_put_together_again(
    nodes: tuple[Node, Node], tmp_path: Path
) -> None:
    a, b = nodes
    async with moving(a, b, tmp_path, POST_COPY) as pair:
        b.rate(WIRE_MBIT)
        try:
            engine, task = await in_post_copy(pair)
            b.set_link(False)
            async with asyncio.timeout(60):
                while not engine.record.interrupted:
                    await asyncio.sleep(0.1)
            source, target = await pair.states()
            assert (source, target) == (DomainState.PAUSED, DomainState.RUNNING), "both halves are kept"
            b.rate(None)
            b.set_link(True)
            record = await ended(task)
        finally:
            b.set_link(True)
            b.rate(None)
        assert record.phase is Phase.SUCCEEDED, record
        assert record.resumes >= 1, "several, when the target does not notice that its connection is dead"
        assert await pair.states() == MOVED
        assert await pair.writes_on()


async def test_a_half_that_dies_in_post_copy_is_told_honestly(
    nodes: tuple[Node, Node], tmp_path: Path
) -> None:
    a, b = nodes
    async with moving(a, b, tmp_path, POST_COPY) as pair:
        b.rate(WIRE_MBIT)
        try:
            _, task = await in_post_copy(pair)
            kill_qemu(b, pair)
            record = await ended(task)
        finally:
            b.rate(None)
        assert record.phase is Phase.FAILED
        assert "ended on the target" in record.reason, record
        assert DomainState.RUNNING not in {(await pair.states())[0]}, "the source is never resumed"
