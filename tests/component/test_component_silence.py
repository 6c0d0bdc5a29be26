# SPDX-License-Identifier: Apache-2.0
"""A node that takes connections and says nothing, as behind a dead link, is given up soon."""

from __future__ import annotations

import asyncio
import time

import grpc
import pytest

from launcher.agent import peers
from launcher.agent.peers import GrpcPeer
from launcher.errors import Unavailable
from launcher.rpc.channel import CONNECT_TIMEOUT_MS, TlsFiles, options


async def test_a_silent_node_is_given_up_after_the_connect_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[asyncio.StreamWriter] = []

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        opened.append(writer)

    server = await asyncio.start_server(take, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    monkeypatch.setattr(
        peers, "_channel", lambda target, tls: grpc.aio.insecure_channel(target, options=options(tls))
    )
    peer = GrpcPeer(f"127.0.0.1:{port}", TlsFiles())
    began = time.monotonic()
    with pytest.raises(Unavailable):
        await peer.state("attempt", timeout_s=60)
    assert time.monotonic() - began < 2 * CONNECT_TIMEOUT_MS / 1000 + 5
    await peer.close()
    for writer in opened:
        writer.close()
    server.close()
