# SPDX-License-Identifier: Apache-2.0
"""Console sessions share one connection to a real unix socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from launcher.console.relay import Consoles
from launcher.errors import Unavailable


class Port:
    """A serial port like QEMU's: one client, bytes both ways."""

    def __init__(self) -> None:
        self.typed = asyncio.Queue[bytes]()
        self.clients = 0
        self.left = asyncio.Event()
        self.writer: asyncio.StreamWriter | None = None
        self.arrived = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.clients += 1
        self.writer = writer
        self.arrived.set()
        while data := await reader.read(100):
            self.typed.put_nowait(data)
        writer.close()
        self.left.set()


@pytest.fixture
async def port(tmp_path: Path) -> AsyncIterator[tuple[Port, str]]:
    port = Port()
    path = str(tmp_path / "s")
    server = await asyncio.start_unix_server(port.serve, path)
    yield port, path
    server.close()
    await server.wait_closed()


async def test_two_sessions_see_the_same_and_both_may_type(port: tuple[Port, str]) -> None:
    guest, path = port
    consoles = Consoles()
    one, two = await consoles.attach(path), await consoles.attach(path)
    await guest.arrived.wait()
    assert guest.writer is not None
    guest.writer.write(b"login: ")
    assert await one.read() == b"login: "
    assert await two.read() == b"login: "
    await two.write(b"root\n")
    assert await guest.typed.get() == b"root\n"
    assert guest.clients == 1
    await one.close()
    await two.close()
    await asyncio.wait_for(guest.left.wait(), 5)


async def test_the_last_one_out_frees_the_port_for_the_next(port: tuple[Port, str]) -> None:
    guest, path = port
    consoles = Consoles()
    first = await consoles.attach(path)
    await first.close()
    await first.close()
    await asyncio.wait_for(guest.left.wait(), 5)
    guest.left.clear()
    assert len(consoles) == 0
    second, third = await asyncio.gather(consoles.attach(path), consoles.attach(path))
    await first.close()
    assert len(consoles) == 1, "whoever left long ago takes nobody's relay away"
    await third.close()
    await second.write(b"x")
    assert await guest.typed.get() == b"x"
    assert guest.clients == 2
    await second.close()
    assert len(consoles) == 0
    await asyncio.wait_for(guest.left.wait(), 5)


async def test_a_session_ends_when_the_guest_does(port: tuple[Port, str]) -> None:
    guest, path = port
    session = await Consoles().attach(path)
    await guest.arrived.wait()
    assert guest.writer is not None
    guest.writer.write(b"bye")
    guest.writer.close()
    read = b""
    while data := await asyncio.wait_for(session.read(), 5):
        read += data
    assert read == b"bye"
    with pytest.raises(Unavailable):
        await session.write(b"x")
    await session.close()


async def test_no_guest_no_console(tmp_path: Path) -> None:
    consoles = Consoles()
    with pytest.raises(Unavailable, match="is the guest running"):
        await consoles.attach(str(tmp_path / "none"))
    assert len(consoles) == 0
