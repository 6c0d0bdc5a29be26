# SPDX-License-Identifier: Apache-2.0
"""Peer-to-peer migrations between two real nodes: watched, steered, aborted, refused."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypervisor_guests import connected, dirtying, dirtying_xml, domain_xml, guest, new_uuid

from launcher.errors import Conflict, MigrationAborted, MigrationFailed, NotFound, WrongPhase
from launcher.hypervisor.driver import LibvirtHypervisor
from launcher.hypervisor.port import (
    DomainState,
    JobCompletedEvent,
    JobStats,
    MigrateFlag,
    MigrateParams,
    MigrationIterationEvent,
)
from launcher.lab.node import Node

pytestmark = pytest.mark.node

MIB = 1024 * 1024

FLAGS = frozenset({MigrateFlag.LIVE, MigrateFlag.PERSIST_DEST, MigrateFlag.UNDEFINE_SOURCE})


def params(target: Node, *, bandwidth_mib: int = 0, flags: frozenset[MigrateFlag] = FLAGS) -> MigrateParams:
    return MigrateParams(
        destination_uri=f"qemu+tcp://{target.ip}/system",
        migrate_uri=f"tcp://{target.ip}",
        flags=flags,
        bandwidth_mib=bandwidth_mib,
    )


async def watch(hypervisor: LibvirtHypervisor, uuid: str, test: Callable[[JobStats], bool]) -> JobStats:
    """The first job statistics that pass ``test``."""
    async with asyncio.timeout(30):
        while not test(stats := await hypervisor.job_stats(uuid)):
            await asyncio.sleep(0.05)
    return stats


async def test_moves_once_it_is_given_speed(node_a: Node, node_b: Node, tmp_path: Path) -> None:
    async with (
        connected(node_a.libvirt_uri) as (source, seen),
        connected(node_b.libvirt_uri) as (target, target_seen),
        guest(target, domain_xml(new_uuid())),
        guest(source, dirtying_xml(tmp_path), paused=False) as uuid,
    ):
        await dirtying(tmp_path)
        assert await source.migration_compatible(await source.domain_xml(uuid, migratable=True)) == ()
        moving = asyncio.create_task(source.migrate(uuid, params(node_b, bandwidth_mib=1)))
        stats = await watch(source, uuid, lambda stats: (stats.memory_iteration or 0) >= 1)
        assert (stats.kind, stats.operation) == ("unbounded", "migration-out")
        assert (stats.memory_total or 0) >= 32 * MIB
        assert (stats.memory_page_size, stats.downtime_net_ms, stats.error) == (4096, None, "")
        slow = await watch(source, uuid, lambda stats: stats.memory_bps is not None)
        assert (slow.memory_bps or 0) < 2 * MIB
        with pytest.raises(Conflict):
            await source.migrate(uuid, params(node_b))
        await source.set_max_downtime(uuid, 5000)
        assert node_a.run("virsh", "migrate-getmaxdowntime", uuid).split() == ["5000"]
        assert not moving.done(), "14 MiB take 14 s"
        await source.set_max_speed(uuid, 1000)
        await asyncio.wait_for(moving, 60)

        assert (await target.domain(uuid)).state is DomainState.RUNNING
        assert (await target.domain(uuid)).persistent
        with pytest.raises(NotFound):
            await source.domain(uuid)
        with pytest.raises(NotFound):
            await source.completed_job_stats(uuid)
        done = (await seen.wait(JobCompletedEvent, lambda event: event.uuid == uuid)).stats
        assert (done.kind, done.operation) == ("completed", "migration-out")
        assert (done.memory_iteration or 0) >= 2
        assert (done.memory_normal_bytes or 0) >= 14 * MIB
        assert 0 < (done.downtime_ms or 0) < (done.time_elapsed_ms or 0)
        iterations = [
            event.iteration
            for event in seen.events
            if isinstance(event, MigrationIterationEvent) and event.uuid == uuid
        ]
        assert iterations[:2] == [1, 2]
        await seen.lifecycle(uuid, "stopped", "migrated")
        await target_seen.lifecycle(uuid, "resumed", "migrated")
        await target.destroy(uuid, graceful=False)
        await target.undefine(uuid)


async def test_abort_leaves_the_guest_where_it_was(node_a: Node, node_b: Node, tmp_path: Path) -> None:
    async with (
        connected(node_a.libvirt_uri) as (source, seen),
        connected(node_b.libvirt_uri) as (target, _),
        guest(source, dirtying_xml(tmp_path), paused=False) as uuid,
    ):
        await dirtying(tmp_path)
        moving = asyncio.create_task(source.migrate(uuid, params(node_b, bandwidth_mib=1)))
        await seen.wait(MigrationIterationEvent, lambda event: event.uuid == uuid)
        await source.abort_job(uuid)
        with pytest.raises(MigrationAborted):
            await asyncio.wait_for(moving, 60)
        record = await source.domain(uuid)
        assert (record.state, record.persistent) == (DomainState.RUNNING, True)
        with pytest.raises(NotFound):
            await target.domain(uuid)


# argv: libvirt URI, domain, target's address
CLIENT = """
import asyncio, sys
from launcher.hypervisor.driver import LibvirtHypervisor
from launcher.hypervisor.port import MigrateFlag, MigrateParams

async def main():
    hypervisor, up = LibvirtHypervisor(sys.argv[1]), asyncio.Event()
    hypervisor.subscribe(lambda event: up.set())
    await hypervisor.start()
    await up.wait()
    flags = frozenset({MigrateFlag.LIVE, MigrateFlag.PERSIST_DEST, MigrateFlag.UNDEFINE_SOURCE})
    params = MigrateParams(destination_uri=f"qemu+tcp://{sys.argv[3]}/system", flags=flags, bandwidth_mib=1)
    await hypervisor.migrate(sys.argv[2], params)

asyncio.run(main())
"""


async def test_a_migration_outlives_the_process_that_began_it(
    node_a: Node, node_b: Node, tmp_path: Path
) -> None:
    async with (
        connected(node_a.libvirt_uri) as (watcher, seen),
        connected(node_b.libvirt_uri) as (target, _),
        guest(watcher, dirtying_xml(tmp_path), paused=False) as uuid,
    ):
        await dirtying(tmp_path)
        client = await asyncio.create_subprocess_exec(
            sys.executable, "-c", CLIENT, node_a.libvirt_uri, uuid, node_b.ip
        )
        await seen.wait(MigrationIterationEvent, lambda event: event.uuid == uuid)
        client.kill()
        assert await client.wait() == -signal.SIGKILL
        before = await watcher.job_stats(uuid)
        await watch(watcher, uuid, lambda now: (now.memory_processed or 0) > (before.memory_processed or 0))
        await watcher.set_max_speed(uuid, 1000)
        await seen.wait(JobCompletedEvent, lambda event: event.uuid == uuid)
        await seen.lifecycle(uuid, "stopped", "migrated")
        assert (await target.domain(uuid)).state is DomainState.RUNNING
        await target.destroy(uuid, graceful=False)
        await target.undefine(uuid)


async def test_completed_statistics_stay_with_a_persistent_source(node_a: Node, node_b: Node) -> None:
    async with (
        connected(node_a.libvirt_uri) as (source, _),
        connected(node_b.libvirt_uri) as (target, _),
        guest(source, domain_xml(new_uuid())) as uuid,
    ):
        await source.migrate(uuid, params(node_b, flags=frozenset({MigrateFlag.LIVE})))
        for _ in range(2):
            done = await source.completed_job_stats(uuid)
            assert (done.kind, done.operation) == ("completed", "migration-out")
            assert done.time_elapsed_ms
        assert (await source.domain(uuid)).reason == "migrated"
        moved = await target.domain(uuid)
        assert (moved.state, moved.persistent) == (DomainState.PAUSED, False)
        await target.destroy(uuid, graceful=False)


async def test_failures_name_what_failed(node_a: Node, node_b: Node) -> None:
    async with (
        connected(node_a.libvirt_uri) as (source, _),
        connected(node_b.libvirt_uri) as (target, _),
        guest(source, domain_xml(new_uuid(), name="refused")) as uuid,
    ):
        nowhere = MigrateParams(destination_uri=f"qemu+tcp://{node_b.ip}:1/system", flags=FLAGS)
        with pytest.raises(MigrationFailed, match="refused"):
            await source.migrate(uuid, nowhere)
        other = await target.define(domain_xml(new_uuid(), name="refused"))
        with pytest.raises(MigrationFailed, match="already exists"):
            await source.migrate(uuid, params(node_b))
        await target.undefine(other)
        with pytest.raises(NotFound):
            await source.migrate(new_uuid(), params(node_b))
        assert source.connected, "the target's trouble is not ours"
        assert (await source.domain(uuid)).state is DomainState.PAUSED
        await source.destroy(uuid, graceful=False)
        with pytest.raises(WrongPhase, match="not running"):
            await source.migrate(uuid, params(node_b))


async def test_many_parameters_at_once(node_a: Node, node_b: Node, tmp_path: Path) -> None:
    """A copied disk, changed XML and parallel connections: every sort of typed parameter, lists included."""
    here, there = tmp_path / "here.raw", tmp_path / "there.raw"
    here.write_bytes(b"launcher" * 1024 * 128)
    there.write_bytes(bytes(1024 * 1024))
    xml = domain_xml(new_uuid(), disk=here).replace("<readonly/>", "")
    async with (
        connected(node_a.libvirt_uri) as (source, seen),
        connected(node_b.libvirt_uri) as (target, _),
        guest(source, xml) as uuid,
    ):
        changed = (await source.domain_xml(uuid, migratable=True)).replace(str(here), str(there))
        flags = FLAGS | {MigrateFlag.NON_SHARED_INC, MigrateFlag.PARALLEL, MigrateFlag.AUTO_CONVERGE}
        moved = MigrateParams(
            destination_uri=f"qemu+tcp://{node_b.ip}/system",
            migrate_uri=f"tcp://{node_b.ip}",
            flags=flags,
            destination_xml=changed,
            persistent_xml=changed,
            parallel_connections=2,
            migrate_disks=("vda",),
            bandwidth_mib=500,
        )
        await source.migrate(uuid, moved)
        assert there.read_bytes() == here.read_bytes()
        assert str(there) in await target.domain_xml(uuid, inactive=True)
        done = (await seen.wait(JobCompletedEvent, lambda event: event.uuid == uuid)).stats
        assert (done.disk_total or 0) >= 1024 * 1024
        await target.destroy(uuid, graceful=False)
        await target.undefine(uuid)
