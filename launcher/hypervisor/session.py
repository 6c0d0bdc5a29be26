# SPDX-License-Identifier: Apache-2.0
"""One session with libvirtd: connections opened together and lost together. Blocking; run it in threads.

Why several: libvirtd stops reading from a connection that has 5 calls in progress
(``max_client_requests`` in libvirtd.conf, default 5), keep-alive answers included. A few calls
on a hung domain would so freeze every other call and then lose the connection. Each lane has
connections of its own here, none carries more than ``CALLS_PER_CONNECTION``, and events have their own.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import libvirt

from launcher.errors import HypervisorUnavailable
from launcher.hypervisor import events, translate

CALLS_PER_CONNECTION = 4
KEEPALIVE_INTERVAL_S = 5
KEEPALIVE_COUNT = 3
"""A libvirtd that is silent for interval x (count + 1) = 20 s counts as gone."""

Lost = Callable[[str], None]


@dataclass(slots=True, kw_only=True, eq=False)
class _Channel:
    """A connection of a lane and the calls in progress on it."""

    connection: libvirt.virConnect
    calls: int = 0


class Session:
    """Open connections to the libvirtd at ``uri``; build it with ``open_session``."""

    def __init__(
        self,
        uri: str,
        primary: libvirt.virConnect,
        callbacks: tuple[int, ...],
        channels: Mapping[str, tuple[_Channel, ...]],
    ) -> None:
        self.uri = uri
        self._primary = primary
        self._callbacks = callbacks
        self._channels = channels
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def connection(self, lane: str) -> Iterator[libvirt.virConnect]:
        """The least busy connection of ``lane``, for one call."""
        with self._lock:
            channel = min(self._channels[lane], key=lambda candidate: candidate.calls)
            channel.calls += 1
        try:
            yield channel.connection
        finally:
            with self._lock:
                channel.calls -= 1

    @contextlib.contextmanager
    def own_connection(self) -> Iterator[libvirt.virConnect]:
        """A connection for one long call alone, opened and closed here."""
        connection = _open(self.uri)
        try:
            yield connection
        finally:
            with contextlib.suppress(libvirt.libvirtError):
                connection.close()

    def close(self) -> None:
        """Close everything; errors of connections that are already lost do not matter."""
        for callback in self._callbacks:
            with contextlib.suppress(libvirt.libvirtError):
                self._primary.domainEventDeregisterAny(callback)
        for connection in self._connections():
            with contextlib.suppress(libvirt.libvirtError):
                connection.unregisterCloseCallback()
            with contextlib.suppress(libvirt.libvirtError):
                connection.close()

    def _connections(self) -> Iterator[libvirt.virConnect]:
        yield self._primary
        for channels in self._channels.values():
            for channel in channels:
                yield channel.connection


def open_session(uri: str, lanes: Mapping[str, int], *, emit: events.Emit, lost: Lost) -> Session:
    """Connect for ``lanes`` (name -> threads) and register all events.

    ``emit`` and ``lost`` (with libvirt's reason) are called in libvirt's event thread; ``lost`` may be
    called once for each connection.

    Raises:
        HypervisorUnavailable: libvirtd cannot be reached.
    """
    events.ensure_event_thread()
    with contextlib.ExitStack() as undo:

        def connect() -> libvirt.virConnect:
            connection = _open(uri)
            undo.callback(connection.close)
            connection.registerCloseCallback(_close_callback, lost)
            return connection

        try:
            channels = {
                lane: tuple(
                    _Channel(connection=connect()) for _ in range(-(-threads // CALLS_PER_CONNECTION))
                )
                for lane, threads in lanes.items()
            }
            primary = connect()
            session = Session(uri, primary, events.register(primary, emit), channels)
        except libvirt.libvirtError as error:
            raise _unreachable(uri, error) from error
        undo.pop_all()
        return session


def _close_callback(_connection: libvirt.virConnect, reason: int, lost: Lost) -> None:
    lost(f"connection to libvirtd closed ({translate.named(translate.CLOSE_REASONS, reason)})")


def _open(uri: str) -> libvirt.virConnect:
    try:
        connection = libvirt.open(uri)
    except libvirt.libvirtError as error:
        raise _unreachable(uri, error) from error
    try:
        connection.setKeepAlive(KEEPALIVE_INTERVAL_S, KEEPALIVE_COUNT)
    except libvirt.libvirtError as error:
        # drivers inside our own process (test:///) have nobody to keep alive
        if not translate.is_unsupported(error):
            raise _unreachable(uri, error) from error
    return connection


def _unreachable(uri: str, error: libvirt.libvirtError) -> HypervisorUnavailable:
    hint = f"is libvirtd running, and may this process use {uri}?"
    return HypervisorUnavailable(f"no connection to libvirtd: {translate.text_of(error)}", hint=hint)
