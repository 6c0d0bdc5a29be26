# SPDX-License-Identifier: Apache-2.0
"""The real API server on a unix socket in a directory of its own, in the test's loop or in a thread."""

from __future__ import annotations

import asyncio
import tempfile
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import grpc
import pytest
from component_parts import issue, openssl
from standin_agent import StandInAgent

from launcher.api.server import ApiServer
from launcher.host.config import Listen, Tls
from launcher.rpc.channel import METADATA, OPTIONS


@pytest.fixture
def agent() -> StandInAgent:
    return StandInAgent()


@pytest.fixture
def run_dir() -> Iterator[Path]:
    """A short path: a unix socket's has at most 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="la") as directory:
        yield Path(directory)


@pytest.fixture
async def server(agent: StandInAgent, run_dir: Path) -> AsyncIterator[ApiServer]:
    made = ApiServer(agent, Listen(socket=str(run_dir / "s")), Tls())
    await made.start()
    yield made
    await made.stop(grace_s=0.5)


@pytest.fixture
async def channel(server: ApiServer, run_dir: Path) -> AsyncIterator[grpc.aio.Channel]:
    async with grpc.aio.insecure_channel(f"unix:{run_dir}/s", options=OPTIONS) as made:
        yield made


@pytest.fixture
def metadata() -> tuple[tuple[str, str | bytes], ...]:
    return METADATA


@pytest.fixture
def address(agent: StandInAgent, run_dir: Path) -> Iterator[str]:
    """The server in a thread of its own, for synchronous clients and for other processes."""
    loop = asyncio.new_event_loop()
    server = ApiServer(agent, Listen(socket=str(run_dir / "s")), Tls())
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    asyncio.run_coroutine_threadsafe(server.start(), loop).result(10)
    yield f"unix:{run_dir}/s"
    asyncio.run_coroutine_threadsafe(server.stop(grace_s=0.5), loop).result(10)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(10)
    loop.close()


@pytest.fixture(scope="session")
def pki() -> Iterator[Path]:
    """A CA with a server's and a client's certificate, and a stranger's from another CA."""
    with tempfile.TemporaryDirectory(prefix="pki") as directory:
        root = Path(directory)
        for ca in ("ca", "other"):
            openssl(
                root, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                "-keyout", f"{ca}.key", "-out", f"{ca}.pem", "-subj", f"/CN={ca}", "-days", "2",
            )  # fmt: skip
        for name, ca in (("server", "ca"), ("client", "ca"), ("stranger", "other")):
            issue(root, name, ca)
        yield root
