# SPDX-License-Identifier: Apache-2.0
"""TCP connections that begin in another network namespace.

A socket stays in the namespace in which it was made, whoever uses it later: only that one call runs in a
thread of its own, connecting and all that follows is the event loop's.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from functools import partial
from pathlib import Path
from typing import Final

from launcher.errors import Unavailable
from launcher.host.duplex import CHUNK, Duplex
from launcher.network.namespace import inside

KEEPALIVE: Final = ((socket.TCP_KEEPIDLE, 60), (socket.TCP_KEEPINTVL, 15), (socket.TCP_KEEPCNT, 8))
"""A guest that vanished without a word is noticed after three minutes of silence."""

_UNREACHABLE: Final = frozenset({errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN})


async def dial(namespace: Path | None, address: str, port: int, *, timeout_s: float) -> Duplex:
    """Connect to ``address`` from the namespace kept at ``namespace`` (None: the agent's own).

    Raises:
        Unavailable: nobody answers, or the port is closed; the error says which.
        NetworkError: there is no such namespace.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    make = partial(socket.socket, family, socket.SOCK_STREAM)
    made = await asyncio.to_thread(inside, namespace, make)
    try:
        made.setblocking(False)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, seconds in KEEPALIVE:
            made.setsockopt(socket.IPPROTO_TCP, option, seconds)
        async with asyncio.timeout(timeout_s):
            await asyncio.get_running_loop().sock_connect(made, (address, port))
        reader, writer = await asyncio.open_connection(sock=made, limit=CHUNK)
    except (OSError, TimeoutError) as error:
        made.close()
        raise _refusal(address, port, error, timeout_s) from error
    except asyncio.CancelledError:
        made.close()
        raise
    return Duplex(reader, writer, what="the guest")


async def dial_unix(path: str, *, timeout_s: float, what: str) -> Duplex:
    """Connect to the socket at ``path``; raises Unavailable."""
    try:
        async with asyncio.timeout(timeout_s):
            reader, writer = await asyncio.open_unix_connection(path, limit=CHUNK)
    except (OSError, TimeoutError) as error:
        raise Unavailable(f"{what} is not there: does the guest run?") from error
    return Duplex(reader, writer, what=what)


def _refusal(address: str, port: int, error: OSError | TimeoutError, timeout_s: float) -> Unavailable:
    if isinstance(error, ConnectionRefusedError):
        hint = "does a program in the guest listen there, and does the guest's firewall let it be reached?"
        return Unavailable(f"the guest refuses connections to port {port} ({address})", hint=hint)
    if isinstance(error, OSError) and error.errno in _UNREACHABLE:
        hint = "has the guest set up its interface, and has the node a route to that address?"
        return Unavailable(f"nobody answers at {address}: {error.strerror}", hint=hint)
    if isinstance(error, TimeoutError):
        hint = "has the guest set up its interface, and does its firewall let the port be reached?"
        return Unavailable(f"{address} does not answer on port {port} within {timeout_s:g} s", hint=hint)
    return Unavailable(f"cannot connect to {address} port {port}: {error.strerror or error}")
