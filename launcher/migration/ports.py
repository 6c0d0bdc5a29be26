# SPDX-License-Identifier: Apache-2.0
"""Hands out the TCP ports that QEMU listens on for incoming migrations, from one configured range."""

from __future__ import annotations

from collections.abc import Callable

from launcher.errors import Exhausted


def disks_owner(attempt: str) -> str:
    """Who holds the port that copied disks of an attempt go to."""
    return f"{attempt}/disks"


class PortPool:
    """Ports by owner (the attempt). ``is_free`` tries a port on the host; somebody else may hold it."""

    def __init__(self, first: int, last: int, is_free: Callable[[int], bool]) -> None:
        self._range = range(first, last + 1)
        self._is_free = is_free
        self._held: dict[str, int] = {}
        self._next = first

    def held(self, owner: str) -> int | None:
        """The port of ``owner``, if it has one."""
        return self._held.get(owner)

    def allocate(self, owner: str) -> int:
        """A free port for ``owner``; the same one when it asks again.

        The search starts after the last one given, so that a port just released rests a while.

        Raises:
            Exhausted: all ports are held or taken.
        """
        if owner in self._held:
            return self._held[owner]
        taken = set(self._held.values())
        size = len(self._range)
        for offset in range(size):
            port = self._range.start + (self._next - self._range.start + offset) % size
            if port not in taken and self._is_free(port):
                self._held[owner] = port
                self._next = port + 1
                return port
        raise Exhausted(
            "migration ports",
            f"no free port for an incoming migration in {self._range.start}-{self._range.stop - 1}",
            hint="widen migration.port_min/port_max or wait until another migration ends",
        )

    def adopt(self, owner: str, port: int) -> None:
        """Take note of a port that ``owner`` held before a restart."""
        self._held[owner] = port

    def release(self, owner: str) -> None:
        """Give the port of ``owner`` back; one that holds none is fine."""
        self._held.pop(owner, None)
