# SPDX-License-Identifier: Apache-2.0
"""The link to libvirtd: connects, notices a loss, connects again, and tells listeners. It makes no calls.

One task owns the session. It never gives up: an absent libvirtd is a state, told once by a
ConnectionEvent, and tried again with a delay that doubles from 0.2 s to 5 s.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

from launcher.errors import HypervisorUnavailable, TimedOut
from launcher.host.logging import get
from launcher.hypervisor.lanes import Lane
from launcher.hypervisor.port import ConnectionEvent, Event
from launcher.hypervisor.session import Session, open_session

log = get(__name__)

FIRST_DELAY_S: Final = 0.2
LAST_DELAY_S: Final = 5.0
GOODBYE_S: Final = 2.0
"""So long a process that ends waits until libvirtd took leave; the kernel closes what is left."""


class Link:
    """The connection state of one libvirtd. Use it from one event loop."""

    def __init__(self, uri: str, *, open_timeout_s: float) -> None:
        self.uri = uri
        self._open_timeout_s = open_timeout_s
        self._opener = Lane(name="open", threads=1, per_domain=1)
        self._closer = Lane(name="close", threads=2, per_domain=2)
        self._listeners: list[Callable[[Event], None]] = []
        self._session: Session | None = None
        self._why = "not started"
        self._announced = False
        self._task: asyncio.Task[None] | None = None

    @property
    def connected(self) -> bool:
        return self._session is not None

    def session(self) -> Session:
        """The present session. May be called from any thread.

        Raises:
            HypervisorUnavailable: there is none now.
        """
        session = self._session
        if session is None:
            raise HypervisorUnavailable(f"no connection to libvirtd: {self._why}", retry_after_s=LAST_DELAY_S)
        return session

    def subscribe(self, listener: Callable[[Event], None]) -> Callable[[], None]:
        """Call ``listener`` on the loop for each event, until the returned function is called."""
        self._listeners.append(listener)

        def unsubscribe() -> None:
            with contextlib.suppress(ValueError):
                self._listeners.remove(listener)

        return unsubscribe

    def start(self) -> None:
        """Begin connecting; once."""
        if self._task is None:
            self._task = asyncio.create_task(self._maintain(), name="libvirt-link")

    async def close(self) -> None:
        """Stop for good. Calls in progress end with errors of their own."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
        session, self._session, self._why = self._session, None, "closed"
        if session is not None:
            await self._dispose(session, within_s=min(GOODBYE_S, self._open_timeout_s))
        self._opener.close()
        self._closer.close()

    async def _maintain(self) -> None:
        loop = asyncio.get_running_loop()
        delay = FIRST_DELAY_S
        while True:
            lost: asyncio.Future[str] = loop.create_future()
            try:
                session = await self._open(lost)
            except HypervisorUnavailable as error:
                self._down(error.message)
            else:
                since = loop.time()
                self._up(session)
                why = await lost
                self._down(why)
                await self._dispose(session, within_s=self._open_timeout_s)
                if loop.time() - since > LAST_DELAY_S:  # else it flaps: keep slowing down
                    delay = FIRST_DELAY_S
            await asyncio.sleep(delay)
            delay = min(2 * delay, LAST_DELAY_S)

    async def _open(self, lost: asyncio.Future[str]) -> Session:
        """Open a session in a thread; ``lost`` gets its result when the session ends.

        An opener that hangs (libvirtd accepts but does not answer) is reported and waited for, because
        another attempt would only hang beside it; it ends when libvirtd goes on or goes away.
        """
        loop = asyncio.get_running_loop()

        def emit(event: Event) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(self._publish, event)

        def gone(why: str) -> None:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(_resolve, lost, why)

        def work() -> Session:
            return open_session(self.uri, emit=emit, lost=gone)

        opening = asyncio.create_task(self._opener.run(work, what="connect", timeout_s=None))
        try:
            while True:
                done, _ = await asyncio.wait({opening}, timeout=self._open_timeout_s)
                if done:
                    return opening.result()
                self._down(f"libvirtd at {self.uri} has not answered for {self._open_timeout_s:g} s")
        finally:
            opening.cancel()

    async def _dispose(self, session: Session, *, within_s: float) -> None:
        """Close a session in a thread, for closing talks to libvirtd, too."""
        try:
            await self._closer.run(session.close, what="disconnect", timeout_s=within_s)
        except TimedOut as error:
            log.debug("closing the old connection to libvirtd takes long", why=error.message)

    def _up(self, session: Session) -> None:
        self._session, self._why, self._announced = session, "", True
        log.info("connected to libvirtd", uri=self.uri)
        self._publish(ConnectionEvent(up=True))

    def _down(self, why: str) -> None:
        changed = self._session is not None or not self._announced
        self._session, self._why, self._announced = None, why, True
        if changed:
            log.warning("no connection to libvirtd, trying again", uri=self.uri, why=why)
            self._publish(ConnectionEvent(up=False, why=why))

    def _publish(self, event: Event) -> None:
        """Schedule every listener on its own, so that one that raises does not cost the others."""
        loop = asyncio.get_running_loop()
        for listener in tuple(self._listeners):
            loop.call_soon(listener, event)


def _resolve(lost: asyncio.Future[str], why: str) -> None:
    if not lost.done():
        lost.set_result(why)
