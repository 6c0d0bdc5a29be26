# SPDX-License-Identifier: Apache-2.0
"""Answers a guest that asks for downward metrics on its virtio-serial port ``org.github.vhostmd.1``.

QEMU listens on a unix socket; we connect to it, once for the life of the guest. A request is the line
``GET /metrics/XML`` and an empty line; the answer is the document and an empty line, to all else
``INVALID REQUEST`` and an empty line. What a guest sends is bounded in size and rate, and goes nowhere.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Final

REQUEST: Final = "GET /metrics/XML"
INVALID: Final = b"INVALID REQUEST\n\n"
LONGEST_LINE: Final = 1024
PAUSE_S: Final = 1.0
"""At least so much between two answers: a guest that asks without end costs the node next to nothing."""
WRITE_TIMEOUT_S: Final = 60.0
"""For a guest that asks and does not read. The connection is given up and made anew."""

Report = Callable[[], Awaitable[bytes]]


async def serve(socket: str, report: Report) -> None:
    """Connect to ``socket`` and answer with what ``report`` gives until QEMU, or a guest that hangs, ends it.

    Raises:
        OSError: nobody listens on the socket.
    """
    reader, writer = await asyncio.open_unix_connection(socket, limit=LONGEST_LINE)
    try:
        await _answer(reader, writer, report)
    except (ConnectionError, TimeoutError):
        return
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, report: Report) -> None:
    while True:
        try:
            line, end = await reader.readline(), await reader.readline()
            ended, valid = not end, _is_request(line) and not end.strip()
        except ValueError:  # a line longer than the limit; asyncio has dropped what it held
            ended = valid = False
        if ended:
            return
        answer = await report() + b"\n" if valid else INVALID
        writer.write(answer)
        async with asyncio.timeout(WRITE_TIMEOUT_S):
            await writer.drain()
        await asyncio.sleep(PAUSE_S)


def _is_request(line: bytes) -> bool:
    return line.decode("ascii", "replace").strip() == REQUEST
