# SPDX-License-Identifier: Apache-2.0
"""One session with libvirtd: connections opened on demand and lost together. Blocking; run it in threads.

A connection carries one call at a time, and events have a connection of their own, because calls that
share one are not independent:

- libvirt < 9.9 may lose the wake-up of the thread that does a connection's input and output; the second
  call then waits until the first one ends, which is never when its domain hangs (seen with 9.0).
- libvirtd stops reading from a connection with 5 calls in progress (``max_client_requests`` in
  libvirtd.conf), keep-alive answers included.

There are thus as many connections as calls were ever in progress at once, which the lanes bound.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Final

import libvirt

from launcher.errors import HypervisorUnavailable
from launcher.hypervisor import events, translate

KEEPALIVE_INTERVAL_S: Final = 5
KEEPALIVE_COUNT: Final = 3
"""A libvirtd that is silent for interval x (count + 1) = 20 s counts as gone."""

Lost = Callable[[str], None]


class Session:
    """Connections to the libvirtd at ``uri``; made by ``open_session``."""

    def __init__(self, uri: str, lost: Lost) -> None:
        self._uri = uri
        self._lost = lost
        self._lock = threading.Lock()
        self._idle: list[libvirt.virConnect] = []
        self._open = True
        self._primary = _connect(uri, lost)
        self._callbacks: tuple[int, ...] = ()

    def register(self, emit: events.Emit) -> None:
        """Ask for all events. Raises libvirtError if the connection is lost by now."""
        self._callbacks = events.register(self._primary, emit)

    @contextlib.contextmanager
    def connection(self) -> Iterator[libvirt.virConnect]:
        """A connection that nobody else uses meanwhile.

        Raises:
            HypervisorUnavailable: none is idle and libvirtd does not take another.
        """
        connection = self._take()
        try:
            yield connection
        finally:
            self._give_back(connection)

    def close(self) -> None:
        """Close everything that is idle; a connection in use is closed after its call."""
        with self._lock:
            self._open, idle, self._idle = False, self._idle, []
        for callback in self._callbacks:
            with contextlib.suppress(libvirt.libvirtError):
                self._primary.domainEventDeregisterAny(callback)
        for connection in (self._primary, *idle):
            _disconnect(connection)

    def _take(self) -> libvirt.virConnect:
        with self._lock:
            if self._idle:
                return self._idle.pop()
        return _connect(self._uri, self._lost)

    def _give_back(self, connection: libvirt.virConnect) -> None:
        with self._lock:
            keep = self._open and bool(connection.isAlive())
            if keep:
                self._idle.append(connection)
        if not keep:
            _disconnect(connection)


def open_session(uri: str, *, emit: events.Emit, lost: Lost) -> Session:
    """Connect to ``uri`` and register all events.

    ``emit`` and ``lost`` (with libvirt's reason) are called in libvirt's event thread; ``lost`` may be
    called once for each connection.

    Raises:
        HypervisorUnavailable: libvirtd cannot be reached.
    """
    events.ensure_event_thread()
    session = Session(uri, lost)
    try:
        session.register(emit)
    except libvirt.libvirtError as error:
        session.close()
        raise _unreachable(uri, error) from error
    return session


def _connect(uri: str, lost: Lost) -> libvirt.virConnect:
    try:
        connection = libvirt.open(uri)
        connection.registerCloseCallback(_close_callback, lost)
    except libvirt.libvirtError as error:
        raise _unreachable(uri, error) from error
    try:
        connection.setKeepAlive(KEEPALIVE_INTERVAL_S, KEEPALIVE_COUNT)
    except libvirt.libvirtError as error:
        # drivers inside our own process (test:///) have nobody to keep alive
        if not translate.is_unsupported(error):
            _disconnect(connection)
            raise _unreachable(uri, error) from error
    return connection


def _disconnect(connection: libvirt.virConnect) -> None:
    """Close; the errors of a connection that is lost already do not matter."""
    with contextlib.suppress(libvirt.libvirtError):
        connection.unregisterCloseCallback()
    with contextlib.suppress(libvirt.libvirtError):
        connection.close()


def _close_callback(_connection: libvirt.virConnect, reason: int, lost: Lost) -> None:
    lost(f"connection to libvirtd closed ({translate.named(translate.CLOSE_REASONS, reason)})")


def _unreachable(uri: str, error: libvirt.libvirtError) -> HypervisorUnavailable:
    hint = f"is libvirtd running, and may this process use {uri}?"
    return HypervisorUnavailable(f"no connection to libvirtd: {translate.text_of(error)}", hint=hint)
