# SPDX-License-Identifier: Apache-2.0
"""MigrationService, NodeService and PeerService over a real socket; the peer's client with them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
import pytest
from component_parts import VMI_YAML
from standin_agent import StandInAgent

from launcher.agent.peers import GrpcPeer, peer_of
from launcher.api.server import ApiServer
from launcher.errors import HypervisorUnavailable, InvalidRequest, MigrationRefused, TimedOut, Unavailable
from launcher.host.config import Tls
from launcher.migration.peer import PrepareRequest
from launcher.rpc.struct import to_plain
from launcher.v1 import instances_pb2, migrations_pb2, node_pb2, types_pb2
from launcher.v1.instances_pb2_grpc import InstanceServiceStub
from launcher.v1.migrations_pb2_grpc import MigrationServiceStub
from launcher.v1.node_pb2_grpc import NodeServiceStub

if TYPE_CHECKING:
    from launcher.v1.migrations_pb2_grpc import MigrationServiceAsyncStub

VMIM_YAML = """\
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstanceMigration
metadata:
  name: move
spec:
  vmiName: demo
"""


@pytest.fixture
async def peer(server: ApiServer, run_dir: Path) -> AsyncIterator[GrpcPeer]:
    made = peer_of(f"unix:{run_dir}/s", Tls())
    yield made
    await made.close()


@pytest.fixture
async def migrations(channel: grpc.aio.Channel) -> MigrationServiceAsyncStub:
    request = instances_pb2.CreateInstanceRequest(text=VMI_YAML)
    await InstanceServiceStub(channel).CreateInstance(request)
    return MigrationServiceStub(channel)


async def test_a_migration_from_create_to_report(
    migrations: MigrationServiceAsyncStub, agent: StandInAgent
) -> None:
    create = migrations_pb2.CreateMigrationRequest(text=VMIM_YAML, target="there")
    created = to_plain((await migrations.CreateMigration(create)).migration)
    assert created["metadata"] == {"name": "move", "namespace": "default"}
    assert agent.targets["default", "move"] == "there"
    watch = migrations.WatchMigration(migrations_pb2.WatchMigrationRequest(name="move"))
    views = [response.migration async for response in watch]
    assert [view.HasField("progress") for view in views] == [False, True, True, True, True]
    assert [view.progress.remaining_bytes >> 20 for view in views] == [0, 100, 50, 25, 12]
    assert [view.progress.HasField("eta_seconds") for view in views] == [False, False, True, True, True]
    report = views[-1].report
    assert (report.succeeded, report.downtime_ms, report.iterations) == (True, 87, 4)
    assert not report.HasField("setup_ms")  # not measured is not 0
    assert [(s.elapsed_seconds, s.action) for s in report.steps] == [
        (10.0, "max_downtime 279 ms"),
        (20.0, "max_downtime 407 ms"),
    ]
    assert report.source == "libvirt"


async def test_listing_watching_and_cancelling(migrations: MigrationServiceAsyncStub) -> None:
    create = migrations_pb2.CreateMigrationRequest(text=VMIM_YAML, target="there")
    await migrations.CreateMigration(create)
    listed = await migrations.ListMigrations(migrations_pb2.ListMigrationsRequest())
    got = await migrations.GetMigration(migrations_pb2.GetMigrationRequest(name="move"))
    assert list(listed.migrations) == [got.migration]
    watch = migrations.WatchMigrations(migrations_pb2.WatchMigrationsRequest())
    events = [event async for event in watch]
    assert [event.type for event in events] == [types_pb2.EVENT_TYPE_ADDED, types_pb2.EVENT_TYPE_BOOKMARK]
    assert [event.HasField("migration") for event in events] == [True, False]
    cancelled = await migrations.CancelMigration(migrations_pb2.CancelMigrationRequest(name="move"))
    assert to_plain(cancelled.migration.object)["status"]["phase"] == "Failed"


@pytest.mark.parametrize(
    ("text", "target", "field"),
    [(VMIM_YAML.replace("vmiName: demo", "{}"), "there", "spec.vmiName")],
)
async def test_what_a_migration_must_say(
    migrations: MigrationServiceAsyncStub, text: str, target: str, field: str
) -> None:
    request = migrations_pb2.CreateMigrationRequest(text=text, target=target)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await migrations.CreateMigration(request)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert field in str(caught.value.details())


async def test_node(channel: grpc.aio.Channel) -> None:
    node = (await NodeServiceStub(channel).GetNode(node_pb2.GetNodeRequest())).node
    assert (node.name, node.libvirt_connected, node.libvirt_reason) == ("here", False, "refused")
    assert to_plain(node.facts) == {"arch": "amd64", "libvirtVersion": 9000000, "cells": [{"id": 0}]}
    assert list(node.peers) == ["there"]


async def test_peer_calls(peer: GrpcPeer, agent: StandInAgent) -> None:
    request = PrepareRequest(
        attempt="u-1", source_node="a", vmi='{"n": 9007199254740993}', domain_xml="<domain/>",
        companions="{}", source_libvirt_version=9000000, source_qemu_version=7002000, source_time=1.0,
    )  # fmt: skip
    reply = await peer.prepare(request)
    assert agent.prepared == [request]
    assert (reply.node, reply.migrate_uri, reply.findings) == ("here", "tcp://192.0.2.1:49152", ())
    assert reply.lease_s == 30.0
    finished = await peer.finish("u-1", succeeded=False, reason="no luck")
    assert (finished.known, finished.adopted, finished.reason) == (True, False, "no luck")
    assert (await peer.finish("u-1", succeeded=False, reclaim=True)).domain == "reclaimed"
    assert (await peer.finish("u-1", succeeded=False, discard=True)).domain == "discarded"
    assert not (await peer.state("u-1")).known


async def test_peer_errors_are_ours_again(peer: GrpcPeer, agent: StandInAgent) -> None:
    request = PrepareRequest(attempt="u", source_node="a", vmi="{}", domain_xml="<domain/>")
    agent.failure = MigrationRefused(["the CPU lacks avx512", "port 49152 is taken"], hint="try node c")
    with pytest.raises(MigrationRefused) as refused:
        await peer.prepare(request)
    assert refused.value.findings == ("the CPU lacks avx512", "port 49152 is taken")
    assert refused.value.hint == "try node c"
    agent.failure = HypervisorUnavailable("no libvirtd", retry_after_s=2.5)
    with pytest.raises(HypervisorUnavailable) as down:
        await peer.prepare(request)
    assert down.value.retry_after_s == 2.5
    with pytest.raises(InvalidRequest):
        await peer.state("")


async def test_a_peer_that_is_not_there(run_dir: Path) -> None:
    peer = peer_of(f"unix:{run_dir}/nobody", Tls())
    with pytest.raises((Unavailable, TimedOut), match="nobody"):
        await peer.state("u-1", timeout_s=5.0)
    await peer.close()


@pytest.mark.parametrize("address", ["there", "10.0.0.1", "10.0.0.1:99999", "10.0.0.1:8443"])
def test_addresses_that_cannot_be_used(address: str) -> None:
    with pytest.raises(InvalidRequest):
        peer_of(address, Tls())  # the last one is an address, but TCP without TLS files


async def test_a_deleted_migration_is_forgotten(
    agent: StandInAgent, migrations: MigrationServiceAsyncStub
) -> None:
    create = migrations_pb2.CreateMigrationRequest(text=VMIM_YAML, target="there")
    await migrations.CreateMigration(create)
    request = migrations_pb2.DeleteMigrationRequest(name="move")
    reply = await migrations.DeleteMigration(request)
    assert to_plain(reply.migration.object)["metadata"]["name"] == "move"
    assert agent.migrations == {}
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await migrations.DeleteMigration(request)
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
