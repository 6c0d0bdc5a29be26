# SPDX-License-Identifier: Apache-2.0
"""Local ends of connections to guests: sockets that listen here, and standard input and output.

A connection has a thread that writes what comes; what goes is read in a thread of gRPC's.
"""

from __future__ import annotations

import os
import select
import selectors
import socket
import struct
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import click

from launcher.errors import Conflict, LauncherError

if TYPE_CHECKING:
    from launcher.cli.streams import Stream

CHUNK: Final = 64 * 1024
BACKLOG: Final = 64
CLOSE_TIMEOUT_S: Final = 5.0

Open = Callable[[Iterable[bytes]], "Stream"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """Connections to ``local`` become connections that ``open_stream`` makes; ``remote`` names those."""

    local: socket.socket
    open_stream: Open
    remote: str

    @property
    def port(self) -> int:
        """The local port."""
        return int(self.local.getsockname()[1])


def listen(address: str, port: int) -> list[socket.socket]:
    """Sockets that listen on ``port`` (0: any) of ``address``; ``localhost`` means that of both families.

    Raises:
        Conflict: the address or port cannot be had.
    """
    if address != "localhost":
        return [_bound(address, port)]
    first = _bound("127.0.0.1", port)
    try:
        return [first, _bound("::1", first.getsockname()[1])]
    except Conflict:
        return [first]  # no IPv6 here, or the port is taken there


def _bound(address: str, port: int) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        return socket.create_server((address, port), family=family, backlog=BACKLOG)
    except OSError as error:
        hint = "choose another port, or :PORT for any that is free"
        raise Conflict(
            f"cannot listen on {address} port {port}: {error.strerror or error}", hint=hint
        ) from error


class Forwarder:
    """Serves listeners until it is interrupted or ``ended`` says so."""

    def __init__(self, listeners: Iterable[Listener]) -> None:
        self._listeners = tuple(listeners)
        self._threads: dict[threading.Thread, _Connection] = {}

    def run(self, ended: Callable[[], bool] = lambda: False, *, look_s: float | None = None) -> None:
        """Accept until ``ended()``, which is asked every ``look_s`` seconds; then end all connections."""
        with selectors.DefaultSelector() as selector:
            for listener in self._listeners:
                selector.register(listener.local, selectors.EVENT_READ, listener)
            try:
                while not ended():
                    for key, _ in selector.select(look_s):
                        self._accept(key.data)
            finally:
                self._close()

    def _accept(self, listener: Listener) -> None:
        try:
            local, _ = listener.local.accept()
        except OSError:
            return  # it left before it was accepted
        self._threads = {thread: one for thread, one in self._threads.items() if thread.is_alive()}
        connection = _Connection(local, listener)
        thread = threading.Thread(target=connection.run, name=f"to {listener.remote}", daemon=True)
        self._threads[thread] = connection
        thread.start()

    def _close(self) -> None:
        for listener in self._listeners:
            listener.local.close()
        for connection in self._threads.values():
            connection.close()
        for thread in self._threads:
            thread.join(CLOSE_TIMEOUT_S)


class _Connection:
    """One accepted connection."""

    def __init__(self, local: socket.socket, listener: Listener) -> None:
        self._local, self._listener = local, listener
        self._stream: Stream | None = None
        self._closed = threading.Event()

    def run(self) -> None:
        """Until both sides have said all, or one broke it."""
        port = self._listener.port
        try:
            self._relay()
        except LauncherError as error:
            if not self._closed.is_set():
                # Not the end of a transfer: the local side must see it broken, too.
                self._local.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                click.echo(f"error: {port} -> {self._listener.remote}: {error.message}", err=True)
                if error.hint:
                    click.echo(f"hint: {error.hint}", err=True)
        finally:
            self._leave(socket.SHUT_RD)
            self._local.close()

    def _relay(self) -> None:
        self._stream = self._listener.open_stream(self._outgoing())
        for data in self._stream:
            try:
                if data is None:
                    self._local.shutdown(socket.SHUT_WR)
                elif data:
                    self._local.sendall(data)
            except OSError:
                return  # the local side is gone

    def _outgoing(self) -> Iterator[bytes]:
        try:
            while data := self._local.recv(CHUNK):
                yield data
        except OSError:
            self.close()  # broken, which is no end of what it had to say

    def close(self) -> None:
        """End it from any thread."""
        self._leave(socket.SHUT_RDWR)

    def _leave(self, how: int) -> None:
        self._closed.set()
        if self._stream is not None:
            self._stream.close()
        try:
            self._local.shutdown(how)  # wakes who waits for it
        except OSError:
            return  # it is not connected any more


def through_stdio(open_stream: Open) -> None:
    """One connection over standard input and output, until both sides have said all; raises LauncherError."""
    typed = _Input(0)
    stream = open_stream(typed)
    try:
        for data in stream:
            if data is None:
                # Whoever reads must see the end while what it writes is still taken.
                null = os.open(os.devnull, os.O_WRONLY)
                os.dup2(null, 1)
                os.close(null)
            elif data:
                _write_all(1, data)
    finally:
        typed.stop()
        stream.close()


class _Input:
    """What can be read from ``fd``, chunk by chunk, until its end or ``stop``."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._wake_out, self._wake_in = os.pipe()

    def stop(self) -> None:
        """End the iteration."""
        os.write(self._wake_in, b"x")

    def __iter__(self) -> Iterator[bytes]:
        while True:
            ready, _, _ = select.select([self._fd, self._wake_out], [], [])
            data = b"" if self._wake_out in ready else os.read(self._fd, CHUNK)
            if not data:
                return
            yield data


def _write_all(fd: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(fd, left) :]
