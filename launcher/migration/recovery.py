# SPDX-License-Identifier: Apache-2.0
"""Puts a guest together again whose post-copy was interrupted: resumes it until it ends or somebody gives up.

Both halves are kept meanwhile, whatever happens: the source has pages that the target lacks, the target has
run the guest since. Each try begins with a look at both sides, so that it may be repeated by another process.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from launcher.errors import HostUnsupported, LauncherError
from launcher.migration.clock import Clock
from launcher.migration.deadline import deadline
from launcher.migration.domains import Domains
from launcher.migration.flags import resume_params
from launcher.migration.ledger import Ledger
from launcher.migration.monitor import Ending, Monitor
from launcher.migration.ownership import SourceSide, TargetSide, Verdict
from launcher.migration.peer import Peer
from launcher.migration.resolve import Resolved, Resolver

LIMIT_S = 3600.0
"""So long it is tried without anybody's help."""
LOOK_S = 15.0
"""For one look at both sides: more than a guest must be missing to be believed lost."""
FIRST_PAUSE_S = 0.5
"""libvirt may refuse for a moment: QEMU takes a while to see that its connection broke."""
LAST_PAUSE_S = 30.0
FLOWING_PAUSE_S = 2.0
NEVER_RAN_S = 60.0
"""A target that waits for the guest's state for so long will not get it over a new connection, either."""
STUCK_S = 3.0
CUT_DEADLINE_S = 15.0
CRASHES = 2
"""A target's libvirtd that ended so often is not troubled again. One that ended once by being asked to resume
(11.3 does, always) is not asked that again: QEMU itself is, on both sides."""
_FLOWS = frozenset({"postcopy-active", "postcopy-recover", "postcopy-recover-setup", "device", "completed"})
"""QEMU's words (MigrationStatus) for a stream that needs no help."""
PAUSED = "postcopy-paused"
"""And for one that does."""
# What libvirt says when QEMU has no need of it, and when the other daemon ends in the middle of a call. A cut
# link sounds the same; then it is QEMU that is asked next, too, which is as good.
_STILL_RUNS = "migration is still running"
_DAEMON_ENDED = ("End of file while reading data", "client socket is closed")
# … and when one side still waits for the old stream: there it is not known to be dead.
# The target's libvirtd says the last when it waited half a minute for one that trusts the old connection.
_TARGET_WAITS = "cannot acquire state change lock"
_WAITS = (_STILL_RUNS, "being actively monitored by another thread", _TARGET_WAITS)


def in_halves(resolved: Resolved) -> bool:
    """The guest is on both sides, and there is something to put together."""
    if resolved.source is not SourceSide.POST_COPY:
        return False
    return resolved.verdict in (Verdict.POST_COPY_BROKEN, Verdict.WAIT)


class Recovery:
    """One interrupted post-copy. ``tell`` is told what is being done; it must not block."""

    def __init__(
        self,
        hypervisor: Domains,
        ledger: Ledger,
        monitor: Monitor,
        resolver: Resolver,
        peer: Peer,
        clock: Clock,
        tell: Callable[[str], None],
    ) -> None:
        self._hypervisor = hypervisor
        self._ledger = ledger
        self._monitor = monitor
        self._resolver = resolver
        self._peer = peer
        self._stuck: tuple[int | None, float] | None = None
        self._clock = clock
        self._tell = tell
        self._barred = ""
        self._hangs = False

    async def run(self, why: str) -> tuple[Ending, Resolved]:
        """Resume until one side owns the guest, or nothing more may be tried; the last look says which.

        Raises:
            HypervisorUnavailable: the source's own libvirt cannot be asked; run it again when it can.
        """
        record = self._ledger.record
        began = record.interrupted_at or self._clock.monotonic()
        # A request to cancel that came before was too late; one that came since means this.
        cancel = record.cancel and bool(record.interrupted)
        await self._ledger.change(interrupted_at=began, interrupted=why, cancel=cancel, post_copy=True)
        self._ledger.step_taken("post-copy interrupted", why)
        pause = FIRST_PAUSE_S
        waits_since: float | None = None
        while True:
            self._tell(f"post-copy is interrupted: {self._ledger.record.interrupted}")
            resolved = await self._resolver.resolve(suspended=False, reason=why, limit_s=LOOK_S)
            if not in_halves(resolved):
                return Ending(returned=False), resolved
            if resolved.verdict is Verdict.POST_COPY_BROKEN:
                await self._sever()
                ending = await self._resume()
                if ending.returned:
                    resolved = await self._resolver.resolve(suspended=False, reason="")
                    return ending, resolved
                crashes = self._ledger.record.crashes + any(map(ending.error.__contains__, _DAEMON_ENDED))
                self._hangs = self._hangs or _TARGET_WAITS in ending.error
                await self._unstick(ending.error)
                await self._ledger.change(interrupted=ending.error or why, crashes=crashes)
            if resolved.target is not TargetSide.INCOMING:
                waits_since = None
            elif waits_since is None:
                waits_since = self._clock.monotonic()
            given_up = self._given_up(began)
            if waits_since is not None and self._clock.monotonic() - waits_since > NEVER_RAN_S:
                given_up = "the connection broke before the target could run the guest"
            if given_up:
                await self._ledger.change(interrupted=given_up)
                return Ending(returned=False, error=given_up), resolved
            await self._monitor.pause(pause)  # less, when somebody asks for it or gives up
            # A daemon that restarted left the stream alone: it goes on by itself and will soon be over.
            flows = _STILL_RUNS in self._ledger.record.interrupted
            pause = min(pause * 2, FLOWING_PAUSE_S if flows else LAST_PAUSE_S)

    async def _resume(self) -> Ending:
        record = self._ledger.record
        assert record.reply is not None, "a migration in post-copy had an answer of the target"
        if record.crashes or self._hangs:
            return await self._past_libvirt(record.reply.migrate_uri)
        params = resume_params(record.outgoing, record.reply)
        self._ledger.step_taken("resume post-copy", f"try {record.resumes + 1}")
        await self._ledger.change(resumes=record.resumes + 1)
        call = asyncio.ensure_future(self._hypervisor.migrate(record.outgoing.uuid, params))
        try:
            return await self._monitor.watch(call)
        finally:
            if not call.done():
                call.cancel()

    async def _sever(self) -> None:
        """Tell the target that its connection is dead once the source's QEMU knows: it may not see that by
        itself for a quarter of an hour, and its libvirtd would hang with whatever it is asked meanwhile."""
        with contextlib.suppress(LauncherError):  # The resume will say what is wrong.
            async with deadline("ending a dead stream", CUT_DEADLINE_S):
                if await self._hypervisor.stream_status(self._ledger.record.outgoing.uuid) == PAUSED:
                    await self._peer.interrupt(self._ledger.record.token)

    async def _past_libvirt(self, migrate_uri: str) -> Ending:
        """Have QEMU resume by itself. It never returns well: who has the guest is seen when it is whole."""
        record = self._ledger.record
        uuid = record.outgoing.uuid
        try:
            async with deadline("resuming post-copy by QEMU itself", CUT_DEADLINE_S):
                status = await self._hypervisor.stream_status(uuid)
                if status in _FLOWS:
                    return Ending(returned=False, error=f"QEMU says that the {_STILL_RUNS} ({status})")
                await self._peer.reopen(record.token)
                await self._hypervisor.resume_stream(uuid, migrate_uri)
        except HostUnsupported as error:
            self._barred, self._hangs = str(error) if record.crashes else "", False
            return Ending(returned=False, error=str(error))
        except LauncherError as error:
            return Ending(returned=False, error=str(error))
        self._ledger.step_taken("resume post-copy by QEMU", "the target's libvirtd ended, or hangs")
        await self._ledger.change(resumes=record.resumes + 1)
        return Ending(returned=False, error=f"QEMU resumes it; the {_STILL_RUNS}")

    async def _unstick(self, error: str) -> None:
        """QEMU takes the stream for alive on one side, and nothing flows: end it there, too.

        A side that only waits never finds out by itself that its connection is dead.
        """
        if not any(words in error for words in _WAITS):
            self._stuck = None
            return
        sent, now = await self._sent(), self._clock.monotonic()
        known = self._stuck is not None and self._stuck[0] == sent
        if not known and _TARGET_WAITS not in error:
            self._stuck = (sent, now)
        elif self._stuck is None or now - self._stuck[1] >= STUCK_S:
            self._stuck = None
            self._ledger.step_taken("cut the stream", f"nothing was sent for {STUCK_S:.0f} s: {error}")
            record = self._ledger.record
            ends = (
                lambda: self._hypervisor.pause_post_copy(record.outgoing.uuid),
                lambda: self._peer.interrupt(record.token),
            )
            for end in ends:
                with contextlib.suppress(LauncherError):  # One of the two knows already.
                    async with deadline("ending a dead stream", CUT_DEADLINE_S):
                        await end()

    async def _sent(self) -> int | None:
        with contextlib.suppress(LauncherError):
            async with deadline("reading the migration's statistics", CUT_DEADLINE_S):
                stats = await self._hypervisor.job_stats(self._ledger.record.outgoing.uuid)
                return stats.data_processed
        return None

    def _given_up(self, began: float) -> str:
        record = self._ledger.record
        if record.cancel:
            return f"given up on request after {record.resumes} tries: {record.interrupted}"
        if self._barred:
            return (
                f"the target's libvirtd ended when the guest was to be resumed, and {self._barred}; "
                "bring libvirt there to another version (11.3 is known for it) and recover by hand"
            )
        if record.crashes >= CRASHES:
            return (
                f"the target's libvirtd ended {record.crashes} times when the guest was to be resumed; "
                "bring it to another version (11.3 is known for it) and recover the migration by hand"
            )
        if self._clock.monotonic() - began > LIMIT_S:
            return f"not resumed within {LIMIT_S:.0f} s ({record.resumes} tries): {record.interrupted}"
        return ""
