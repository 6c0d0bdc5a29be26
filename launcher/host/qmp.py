# SPDX-License-Identifier: Apache-2.0
"""One command for a QEMU over a monitor of its own, out of band: answered even while its main thread hangs.

Only for what libvirt has no way to; it never touches libvirt's monitor. The protocol is QEMU's QMP
specification (docs/interop/qmp-spec.rst of QEMU), whose capability ``oob`` this is.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

from launcher.errors import CommandFailed, HostUnsupported, TimedOut

LINE_BYTES = 1 << 20
"""An answer is one line; that of a query may be long."""


async def out_of_band(socket: str, command: str, *, timeout_s: float, **arguments: object) -> dict[str, Any]:
    """Run ``command``, which must be one that QEMU lets run out of band.

    Raises:
        HostUnsupported: there is no such monitor.
        CommandFailed: QEMU refuses; its words are told.
        TimedOut: no answer within ``timeout_s`` seconds.
    """
    try:
        async with asyncio.timeout(timeout_s):
            return await _run(socket, command, arguments)
    except TimeoutError as error:
        raise TimedOut(f"QEMU did not answer {command} within {timeout_s:g} s") from error


async def _run(socket: str, command: str, arguments: dict[str, object]) -> dict[str, Any]:
    try:
        reader, writer = await asyncio.open_unix_connection(socket, limit=LINE_BYTES)
    except OSError as error:
        hint = "migration.rescue_monitor gives one to guests that start with it"
        why = f"{socket}: {error.strerror or error}"
        raise HostUnsupported("a monitor beside libvirt's", why, hint=hint) from error
    try:
        await reader.readline()  # the greeting
        await _ask(reader, writer, "execute", "qmp_capabilities", {"enable": ["oob"]})
        return await _ask(reader, writer, "exec-oob", command, arguments)
    except (OSError, ValueError) as error:
        raise CommandFailed([command], 1, f"the monitor of QEMU broke: {error}") from error
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def _ask(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, how: str, command: str, arguments: object
) -> dict[str, Any]:
    message = {how: command, "arguments": arguments, "id": command}
    writer.write(json.dumps(message).encode() + b"\n")
    await writer.drain()
    while True:
        line = await reader.readline()
        if not line:
            raise CommandFailed([command], 1, "QEMU ended the connection")
        said: dict[str, Any] = json.loads(line)
        if "error" in said:
            raise CommandFailed([command], 1, str(said["error"].get("desc", "")))
        if said.get("id") == command:
            found: dict[str, Any] = said.get("return", {})
            return found
