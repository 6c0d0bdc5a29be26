# SPDX-License-Identifier: Apache-2.0
"""The migration engine, source and target, between two real libvirtds, without agents around it."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from hypervisor_guests import connected, dirtying, dirtying_xml, guest

from launcher.errors import NotFound
from launcher.hypervisor.driver import LibvirtHypervisor
from launcher.hypervisor.port import DomainRecord, DomainState
from launcher.lab.node import Node
from launcher.migration.attempt import AttemptRecord, Cause, Material, Outgoing, Phase, decode, encode
from launcher.migration.clock import SystemClock
from launcher.migration.compose import make_policy
from launcher.migration.options import Options, RampOptions, Workload
from launcher.migration.peer import PrepareRequest
from launcher.migration.ports import PortPool
from launcher.migration.progress import MigrationProgress
from launcher.migration.reservation import IncomingRecord, Reservation, tcp_endpoints
from launcher.migration.source import SourceMigration, begin
from launcher.migration.target import TargetSide
from launcher.units import MIB

pytestmark = pytest.mark.node

# The guest keeps between 0.5 and 15 MiB dirty: at 4 MiB/s a pass takes at least an eighth of a second.
CAP = 4 * MIB
SLOW = RampOptions(initial_ms=20, steps=4, start_iteration=2, cooldown_s=1)
NEVER = Options(bandwidth_bps=CAP, max_downtime_ms=20, ramp=SLOW)


class Hooks:
    """A target whose agent has nothing to prepare."""

    def __init__(self, uuid: str) -> None:
        self._uuid = uuid
        self.released = 0
        self.adopted: list[DomainState] = []

    async def identify(self, request: PrepareRequest) -> str:
        return self._uuid

    async def reserve(self, request: PrepareRequest) -> Reservation:
        return Reservation(uuid=self._uuid)

    async def release(self, record: IncomingRecord) -> None:
        self.released += 1

    async def adopt(self, record: IncomingRecord, domain: DomainRecord) -> None:
        self.adopted.append(domain.state)


class NoJournal:
    async def save(self, record: IncomingRecord) -> None: ...
    async def forget(self, attempt: str) -> None: ...


class Pair:
    """Both ends of one migration of one guest; ``engine`` makes the source's, again after it was killed."""

    def __init__(
        self, source: LibvirtHypervisor, target: LibvirtHypervisor, node: Node, uuid: str, options: Options
    ) -> None:
        self.source = source
        self.target = target
        self.uuid = uuid
        self.hooks = Hooks(uuid)
        self.looks: list[MigrationProgress] = []
        self.journal: list[str] = []
        self._outgoing = Outgoing(
            attempt=f"attempt-{uuid}",
            namespace="default",
            name="dirtying",
            uuid=uuid,
            source_node="a",
            target_node="b",
            options=options,
            workload=Workload(memory_bytes=32 * MIB),
        )
        self._side = TargetSide(
            node="b",
            hypervisor=target,
            hooks=self.hooks,
            checks=(),
            ports=PortPool(49300, 49310, lambda _port: True),
            endpoints=tcp_endpoints(f"qemu+tcp://{node.ip}/system", node.ip),
            clock=SystemClock(),
            journal=NoJournal(),
        )

    async def save(self, record: AttemptRecord) -> None:
        self.journal.append(encode(record))

    def engine(self, record: AttemptRecord | None = None) -> SourceMigration:
        record = record or begin(self._outgoing)
        outgoing = record.outgoing
        return SourceMigration(
            record,
            material=Material(vmi="{}"),
            hypervisor=self.source,
            peer=self._side,
            policy=make_policy(outgoing.policy, outgoing.options, outgoing.workload),
            clock=SystemClock(),
            journal=self,
            publish=self.looks.append,
        )

    async def until_pass(self, number: int) -> None:
        async with asyncio.timeout(60):
            while not any(look.iteration >= number for look in self.looks):
                await asyncio.sleep(0.05)

    async def states(self) -> tuple[DomainState | None, DomainState | None]:
        return await _state(self.source, self.uuid), await _state(self.target, self.uuid)


async def _state(hypervisor: LibvirtHypervisor, uuid: str) -> DomainState | None:
    try:
        return (await hypervisor.domain(uuid)).state
    except NotFound:
        return None


@asynccontextmanager
async def moving(a: Node, b: Node, folder: Path, options: Options) -> AsyncIterator[Pair]:
    """A busy guest on ``a`` and both ends of its migration to ``b``."""
    async with (
        connected(a.libvirt_uri) as (source, _),
        connected(b.libvirt_uri) as (target, _),
        guest(source, dirtying_xml(folder), paused=False) as uuid,
    ):
        await dirtying(folder)
        try:
            yield Pair(source, target, b, uuid, options)
        finally:
            await target.destroy(uuid, graceful=False)
            await target.undefine(uuid)


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
    options = Options(bandwidth_bps=CAP, completion_timeout_per_gib_s=12, max_downtime_ms=20, ramp=SLOW)
    async with moving(node_a, node_b, tmp_path, options) as pair:
        task = asyncio.create_task(pair.engine().run())
        await pair.until_pass(2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        record = await asyncio.wait_for(pair.engine(decode(pair.journal[-1])).run(), 60)
        assert (record.phase, record.cause) == (Phase.FAILED, Cause.COMPLETION_TIMEOUT), record.reason
        assert [step.action for step in record.steps] == ["max_downtime 20 ms", "abort"]
        assert 12 <= record.steps[-1].t < 16
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
            while await _state(pair.source, pair.uuid) is not DomainState.SHUTOFF:
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
