# SPDX-License-Identifier: Apache-2.0
"""Serial consoles: one connection to QEMU's socket, shared by any number of sessions. Bytes only.

QEMU's socket serves one client at a time, so the relay holds the connection while somebody looks and every
session sees what the guest prints; whoever types, types to the same guest. A session that does not read
loses the oldest bytes, never the guest's or another session's time.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from launcher.errors import Unavailable

_CHUNK = 4096
_BACKLOG_BYTES = 1 << 20
_CONNECT_TIMEOUT_S = 5.0
_WRITE_TIMEOUT_S = 10.0


class Session:
    """One viewer. ``read`` returns empty bytes when the console ended."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self._chunks: deque[bytes] = deque()
        self._size = 0
        self._ended = False
        self._wake = asyncio.Event()

    async def read(self) -> bytes:
        """The next bytes of the guest, waiting for some."""
        while not self._chunks:
            if self._ended:
                return b""
            self._wake.clear()
            await self._wake.wait()
        data = b"".join(self._chunks)
        self._chunks.clear()
        self._size = 0
        return data

    async def write(self, data: bytes) -> None:
        """Type ``data`` into the guest; raises Unavailable when the guest takes nothing for 10 s."""
        await self._relay.send(data)

    async def close(self) -> None:
        """Leave; the last one to leave frees the guest's socket."""
        self.end()
        await self._relay.leave(self)

    def feed(self, data: bytes) -> None:
        """Called by the relay with what the guest printed."""
        self._chunks.append(data)
        self._size += len(data)
        while self._size > _BACKLOG_BYTES:
            self._size -= len(self._chunks.popleft())
        self._wake.set()

    def end(self) -> None:
        """Called by the relay when there will be no more."""
        self._ended = True
        self._wake.set()


class Relay:
    """The console at ``path``; made by ``Consoles``."""

    def __init__(self, path: str, unused: Callable[[Relay], None]) -> None:
        self.path = path
        self._unused = unused
        self._sessions: set[Session] = set()
        self._joining = 0
        self._writer: asyncio.StreamWriter | None = None
        self._pump: asyncio.Task[None] | None = None
        self._lock = asyncio.Lock()

    async def join(self) -> Session:
        """A new session.

        Raises:
            Unavailable: nobody listens on the socket: the guest does not run.
        """
        self._joining += 1
        try:
            return await self._join()
        finally:
            self._joining -= 1
            self._tell_unused()

    async def _join(self) -> Session:
        async with self._lock:
            if self._writer is None:
                try:
                    async with asyncio.timeout(_CONNECT_TIMEOUT_S):
                        reader, self._writer = await asyncio.open_unix_connection(self.path)
                except (OSError, TimeoutError) as error:
                    raise Unavailable("the serial console is not there: is the guest running?") from error
                self._pump = asyncio.create_task(self._read(reader))
            session = Session(self)
            self._sessions.add(session)
            return session

    async def leave(self, session: Session) -> None:
        """Remove ``session``; twice is fine."""
        async with self._lock:
            self._sessions.discard(session)
            if not self._sessions:
                await self._disconnect()
        self._tell_unused()

    def _tell_unused(self) -> None:
        # Who waits to join counts: another relay beside this one would be a second client of QEMU's.
        if not self._sessions and not self._joining:
            self._unused(self)

    async def send(self, data: bytes) -> None:
        """Write to the guest."""
        writer = self._writer
        if writer is None:
            raise Unavailable("the serial console ended")
        try:
            writer.write(data)
            async with asyncio.timeout(_WRITE_TIMEOUT_S):
                await writer.drain()
        except (OSError, TimeoutError) as error:
            raise Unavailable("the guest's serial port takes no input") from error

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while data := await reader.read(_CHUNK):
                for session in self._sessions:
                    session.feed(data)
        except OSError:
            pass  # the guest went away; the sessions are told below
        for session in self._sessions:
            session.end()
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()

    async def _disconnect(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()
        pump, self._pump = self._pump, None
        if pump is not None:
            pump.cancel()
            await asyncio.wait([pump])


class Consoles:
    """The consoles that somebody looks at, by socket path."""

    def __init__(self) -> None:
        self._relays: dict[str, Relay] = {}

    async def attach(self, path: str) -> Session:
        """Join the console at ``path``; raises Unavailable."""
        relay = self._relays.get(path)
        if relay is None:
            relay = self._relays[path] = Relay(path, self._forget)
        return await relay.join()

    def __len__(self) -> int:
        return len(self._relays)

    def _forget(self, relay: Relay) -> None:
        if self._relays.get(relay.path) is relay:
            del self._relays[relay.path]
