# SPDX-License-Identifier: Apache-2.0
"""One blocking libvirt call: a lane's thread, a connection, a deadline, an error of our own. No policy.

The lanes keep calls of different temper apart: none of these can delay another lane.

    query    what libvirtd answers by itself, so also for a domain whose QEMU hangs
    change   what needs an answer of a domain's QEMU, or waits for one that does
    start    starting a domain and asking it to shut down (seconds; minutes with huge pages)
    kill     ending a domain, the cure for a hung one, so never refused for its sake
    control  watching and steering a running job
    agent    commands for the guest agent, which a guest may leave unanswered
    dump     whole dumps of memory
    migrate  whole migrations
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from enum import StrEnum
from typing import Final, TypeVar

import libvirt

from launcher.errors import NotFound
from launcher.hypervisor import translate
from launcher.hypervisor.lanes import Lane
from launcher.hypervisor.link import Link

T = TypeVar("T")


class LaneName(StrEnum):
    """The lanes, see above."""

    QUERY = "query"
    CHANGE = "change"
    START = "start"
    KILL = "kill"
    CONTROL = "control"
    AGENT = "agent"
    DUMP = "dump"
    MIGRATE = "migrate"


_LANES: Final = (
    # a domain may hang with one change, and with one look at its job while another call aborts that job
    (LaneName.QUERY, 4, 4),
    (LaneName.CHANGE, 8, 1),
    (LaneName.START, 4, 1),
    (LaneName.KILL, 4, 4),
    (LaneName.CONTROL, 4, 2),
    (LaneName.AGENT, 4, 1),
    (LaneName.DUMP, 2, 1),
)
"""Lane, its threads, and how many of them one domain may hold.

The last number is small for libvirtd's sake, too. It starts with 5 threads for all clients (min_workers) and
should grow to 20 (max_workers), but fails to when two calls arrive at once while all of its threads are
busy (seen with 9.0: its count of free threads less waiting calls is unsigned and wraps). If 5 calls
hang then, no other call of this sort is served until one of them ends. ``min_workers = 20`` in
libvirtd.conf or virtqemud.conf lifts this limit.
"""

_NEVER_HANG: Final = (LaneName.QUERY, LaneName.KILL)
"""Lanes that no domain can hold up, so no domain is capped in them."""


class Calls:
    """Runs functions on connections and domains of one link."""

    def __init__(self, link: Link, *, timeout_s: float, migrations: int) -> None:
        self._link = link
        self._timeout_s = timeout_s
        self._lanes: dict[str, Lane] = {
            name: Lane(name=name, threads=threads, per_domain=per_domain)
            for name, threads, per_domain in _LANES
        }
        self._lanes[LaneName.MIGRATE] = Lane(
            name=LaneName.MIGRATE, threads=migrations, per_domain=1, waits=False
        )

    async def on_host(
        self, call: Callable[[libvirt.virConnect], T], *, what: str, timeout_s: float | None = None
    ) -> T:
        """Run ``call(connection)`` in the query lane; ``what`` names it in errors.

        Raises:
            HypervisorUnavailable: at once without a connection, or when it breaks meanwhile.
            TimedOut: the deadline (by default the constructor's) passed.
            LauncherError: libvirt's error, translated.
        """

        def work() -> T:
            with self._link.session().connection() as connection:
                return _translated(connection, lambda: call(connection), what=what, uuid="")

        self._link.session()
        return await self._lanes[LaneName.QUERY].run(work, what=what, timeout_s=timeout_s or self._timeout_s)

    async def on_domain(
        self,
        uuid: str,
        call: Callable[[libvirt.virDomain], T],
        *,
        what: str,
        lane: LaneName,
        timeout_s: float | None = None,
    ) -> T:
        """Run ``call(domain)`` in ``lane``; raises as ``on_host``, and further

        Raises:
            NotFound: there is no such domain.
            Conflict: earlier calls on this domain hang.
        """

        def work() -> T:
            with self._link.session().connection() as connection:
                return _translated(
                    connection, lambda: call(connection.lookupByUUIDString(uuid)), what=what, uuid=uuid
                )

        self._link.session()
        return await self._lanes[lane].run(
            work,
            what=what,
            domain="" if lane in _NEVER_HANG else uuid,
            timeout_s=timeout_s or self._timeout_s,
        )

    async def if_exists(
        self,
        uuid: str,
        call: Callable[[libvirt.virDomain], object],
        *,
        what: str,
        lane: LaneName,
        timeout_s: float | None = None,
    ) -> None:
        """``on_domain`` for calls whose aim is reached when there is no such domain."""
        with contextlib.suppress(NotFound):
            await self.on_domain(uuid, call, what=what, lane=lane, timeout_s=timeout_s)

    async def migrate(self, uuid: str, call: Callable[[libvirt.virDomain], None]) -> None:
        """Run ``call(domain)``, a migration, without a deadline.

        Raises:
            Conflict: the domain is being migrated already, or all threads for migrations are in use.
            NotFound, HypervisorUnavailable, MigrationAborted, MigrationFailed: how it ended.
        """

        def work() -> None:
            with self._link.session().connection() as connection:
                domain = _translated(
                    connection, lambda: connection.lookupByUUIDString(uuid), what="migrate", uuid=uuid
                )
                try:
                    call(domain)
                except libvirt.libvirtError as error:
                    alive = bool(connection.isAlive())
                    raise translate.migration_error_from_libvirt(error, domain=uuid, alive=alive) from error

        self._link.session()
        await self._lanes[LaneName.MIGRATE].run(work, what="migrate", domain=uuid, timeout_s=None)

    def close(self) -> None:
        """Let the idle threads end."""
        for lane in self._lanes.values():
            lane.close()


def _translated(connection: libvirt.virConnect, call: Callable[[], T], *, what: str, uuid: str) -> T:
    try:
        return call()
    except libvirt.libvirtError as error:
        alive = bool(connection.isAlive())
        raise translate.error_from_libvirt(error, what=what, domain=uuid, alive=alive) from error
