# SPDX-License-Identifier: Apache-2.0
"""Fan-out of changes to watchers. A watcher sees the present state, then every change, in order.

Each watcher has a bounded queue. One that falls too far behind is cut off with Unavailable and must start
over (it then sees the present state again), so a slow client costs memory only up to the bound.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Hashable, Iterable
from typing import Generic, TypeVar

from launcher.agent.port import EventType, WatchEvent
from launcher.errors import Unavailable

T = TypeVar("T")
BACKLOG = 4096
"""Changes that a watcher may be behind before it is cut off."""


class _Watcher(Generic[T]):
    def __init__(self, wanted: Callable[[T], bool]) -> None:
        self.wanted = wanted
        self.queue: asyncio.Queue[WatchEvent[T] | None] = asyncio.Queue(BACKLOG)
        self.lost = False

    def put(self, event: WatchEvent[T]) -> None:
        try:
            self.queue.put_nowait(event)
        except asyncio.QueueFull:
            self.lost = True


class Hub(Generic[T]):
    """The present objects by key, and who watches them. Used on the event loop only."""

    def __init__(self) -> None:
        self._objects: dict[Hashable, T] = {}
        self._watchers: set[_Watcher[T]] = set()
        self._version = 0
        self._closed = False

    @property
    def version(self) -> int:
        """Rises with each change."""
        return self._version

    def get(self, key: Hashable) -> T | None:
        """The object of ``key``."""
        return self._objects.get(key)

    def all(self) -> Iterable[T]:
        """All present objects."""
        return tuple(self._objects.values())

    def set(self, key: Hashable, value: T) -> None:
        """Publish a new state; one that equals the present state is no change."""
        old = self._objects.get(key)
        if old == value:
            return
        self._objects[key] = value
        self._send(EventType.ADDED if old is None else EventType.MODIFIED, value)

    def remove(self, key: Hashable, last: T | None = None) -> None:
        """Publish that an object is gone; ``last`` is what it was at the end."""
        old = self._objects.pop(key, None)
        if old is not None:
            self._send(EventType.DELETED, last if last is not None else old)

    def close(self) -> None:
        """End all watches."""
        self._closed = True
        for watcher in self._watchers:
            watcher.lost = False
            if not watcher.queue.full():
                watcher.queue.put_nowait(None)

    def _send(self, kind: EventType, value: T) -> None:
        self._version += 1
        event = WatchEvent(type=kind, version=self._version, object=value)
        for watcher in self._watchers:
            if watcher.wanted(value):
                watcher.put(event)

    async def watch(self, wanted: Callable[[T], bool]) -> AsyncIterator[WatchEvent[T]]:
        """ADDED for each present object, a BOOKMARK, then each change.

        Raises:
            Unavailable: this watcher fell too far behind.
        """
        watcher: _Watcher[T] = _Watcher(wanted)
        present = [value for value in self._objects.values() if wanted(value)]
        version = self._version
        self._watchers.add(watcher)  # no await since the snapshot: nothing can fall between
        try:
            for value in present:
                yield WatchEvent(type=EventType.ADDED, version=version, object=value)
            yield WatchEvent(type=EventType.BOOKMARK, version=version)
            while not self._closed:
                event = await watcher.queue.get()
                if event is None:
                    return
                if watcher.lost:
                    raise Unavailable("this watch fell behind; start it again to see the present state")
                yield event
        finally:
            self._watchers.discard(watcher)
