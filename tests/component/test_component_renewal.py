# SPDX-License-Identifier: Apache-2.0
"""Certificates of agents are renewed while they run, authority and all; half-written files change nothing."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
from component_parts import issue
from standin_agent import StandInAgent

from launcher.agent.peers import GrpcPeer, peer_of
from launcher.api.server import ApiServer
from launcher.errors import Unavailable
from launcher.host.config import Listen, Tls
from launcher.rpc.channel import METADATA
from launcher.v1 import peer_pb2
from launcher.v1.peer_pb2_grpc import PeerServiceStub


def tls(root: Path, name: str) -> Tls:
    return Tls(certificate=f"{root}/{name}.pem", key=f"{root}/{name}.key", ca=f"{root}/ca.pem")


def renew(root: Path, pki: Path, authority: str) -> None:
    """Everything anew, signed by ``authority``."""
    for ending in ("pem", "key"):
        shutil.copy(pki / f"{authority}.{ending}", root / f"ca.{ending}")
    for name in ("server", "client"):
        issue(root, name, "ca")


async def serve(agent: StandInAgent, root: Path, port: int = 0) -> ApiServer:
    server = ApiServer(agent, Listen(socket="", tcp=f"127.0.0.1:{port}"), tls(root, "server"))
    await server.start()
    return server


@pytest.fixture
async def pair(agent: StandInAgent, pki: Path, run_dir: Path) -> AsyncIterator[tuple[ApiServer, GrpcPeer]]:
    renew(run_dir, pki, "ca")
    server = await serve(agent, run_dir)
    peer = peer_of(f"127.0.0.1:{server.tcp_port}", tls(run_dir, "client"))
    yield server, peer
    await peer.close()
    await server.stop(grace_s=0)


async def test_both_ends_take_a_new_authority_up(
    pair: tuple[ApiServer, GrpcPeer], pki: Path, run_dir: Path
) -> None:
    server, peer = pair
    files = [(run_dir / name).read_bytes() for name in ("ca.pem", "client.key", "client.pem")]
    old = grpc.aio.secure_channel(f"127.0.0.1:{server.tcp_port}", grpc.ssl_channel_credentials(*files))
    assert not (await peer.state("u")).known
    renew(run_dir, pki, "other")
    assert not (await peer.state("u")).known, "a new connection, by the new certificates of both"
    request = peer_pb2.GetMigrationStateRequest(attempt="u")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await PeerServiceStub(old).GetMigrationState(request, timeout=5, metadata=METADATA)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    await old.close()


async def test_files_that_are_not_whole_yet_change_nothing(
    pair: tuple[ApiServer, GrpcPeer], pki: Path, run_dir: Path
) -> None:
    _, peer = pair
    assert not (await peer.state("u")).known
    key = run_dir / "client.key"
    whole = key.read_bytes()
    for content in (None, b"", whole[:50], (pki / "stranger.key").read_bytes()):
        key.unlink() if content is None else key.write_bytes(content)
        assert not (await peer.state("u")).known, "the old connection is as good as it was"
    renew(run_dir, pki, "other")
    assert not (await peer.state("u")).known


async def test_what_was_never_whole_is_told(pki: Path, run_dir: Path) -> None:
    renew(run_dir, pki, "ca")
    peer = peer_of("127.0.0.1:1", tls(run_dir, "client"))
    with pytest.raises(Unavailable):
        await peer.state("u")
    await peer.close()
