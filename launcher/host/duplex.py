# SPDX-License-Identifier: Apache-2.0
"""An open connection as bytes both ways, each way with an end of its own. Knows no addresses.

Nothing is buffered beyond one read and one write: who does not read slows the other side down, as over TCP.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import Final

from launcher.errors import Unavailable

CHUNK: Final = 64 * 1024


class Duplex:
    """A connection that asyncio made; ``what`` names its other side in errors."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, what: str) -> None:
        self._reader, self._writer, self._what = reader, writer, what
        self._heard_all = self._said_all = False
        # Then draining means that the kernel has all of it: what was written survives ``close``.
        writer.transport.set_write_buffer_limits(high=0)

    async def read(self) -> bytes:
        """The next bytes; empty when the other side has said all. Raises Unavailable."""
        try:
            data = await self._reader.read(CHUNK)
        except OSError as error:
            raise Unavailable(f"{self._what} broke the connection: {error.strerror or error}") from error
        self._heard_all = self._heard_all or not data
        return data

    async def write(self, data: bytes) -> None:
        """Hand ``data`` over, waiting until the other side makes room. Raises Unavailable."""
        try:
            self._writer.write(data)
            await self._writer.drain()
        except OSError as error:
            raise Unavailable(f"{self._what} broke the connection: {error.strerror or error}") from error

    async def end(self) -> None:
        """Say that nothing more will be written; reading goes on."""
        try:
            if self._writer.can_write_eof() and not self._writer.is_closing():
                self._writer.write_eof()
                self._said_all = True
        except OSError:
            return  # it is gone, and reading will tell

    async def close(self) -> None:
        """End the connection at once; a read under way ends. Twice is fine.

        Over TCP the other side sees it broken, unless both sides have said all: half a transfer is no whole.
        """
        transport = self._writer.transport
        if transport.is_closing():
            return
        made: socket.socket | None = transport.get_extra_info("socket")
        if made is not None and made.family != socket.AF_UNIX and not (self._heard_all and self._said_all):
            made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        transport.abort()
