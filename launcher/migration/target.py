# SPDX-License-Identifier: Apache-2.0
"""The receiving side: checks and reserves for an incoming guest, then adopts it or lets go of everything.

It implements the calls of ``peer.Peer`` for this node. The reservation has a lease: a source that
disappears needs no clean-up call. A domain that finished loading is never destroyed here, whatever the
source says: then the source asks again, sees who owns the guest, and gives way.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from weakref import WeakValueDictionary

import msgspec

from launcher.errors import LauncherError, NotFound
from launcher.hypervisor.port import DomainRecord
from launcher.migration.clock import Clock
from launcher.migration.deadline import deadline
from launcher.migration.domains import Domains
from launcher.migration.leavings import ACT_DEADLINE_S, Leavings, state_of
from launcher.migration.ownership import HALVES, target_side
from launcher.migration.ownership import TargetSide as Side
from launcher.migration.peer import PrepareReply, PrepareRequest, TargetState
from launcher.migration.ports import PortPool, disks_owner
from launcher.migration.reservation import (
    Check,
    EndpointsOf,
    IncomingRecord,
    Landing,
    Reservation,
    TargetHooks,
    TargetJournal,
)

CHECKS_DEADLINE_S = 5.0
RESERVE_DEADLINE_S = 14.0
"""Together a little less than the source waits."""
LEASE_S = 120.0
"""Long enough for a source agent to restart between prepare and the migrate call."""
REMEMBER_S = 3600.0
"""For so long the source can ask about an attempt that ended."""
READ_DEADLINE_S = 5.0


class TargetSide:
    """All incoming migrations of one node."""

    def __init__(
        self,
        *,
        node: str,
        hypervisor: Domains,
        hooks: TargetHooks,
        checks: Sequence[Check],
        ports: PortPool,
        endpoints: EndpointsOf,
        clock: Clock,
        journal: TargetJournal,
        inbound: int = 2,
    ) -> None:
        self._node = node
        self._hypervisor = hypervisor
        self._hooks = hooks
        self._checks = tuple(checks)
        self._ports = ports
        self._endpoints = endpoints
        self._clock = clock
        self._journal = journal
        self._inbound = inbound
        self._records: dict[str, IncomingRecord] = {}
        self._leavings = Leavings(hypervisor, hooks, ports, self._forget_soon)
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def restore(self, records: Sequence[IncomingRecord]) -> None:
        """Take over what the journal holds after a restart; leases go on."""
        latest = self._clock.monotonic() + REMEMBER_S
        for record in records:
            # Times of another boot mean nothing in this one.
            kept = msgspec.structs.replace(record, expires=min(record.expires, latest))
            self._records[record.attempt] = kept
            disks_port = _landing(record).disks_port
            if record.port and not record.adopted and not record.released:
                self._ports.adopt(record.attempt, record.port)
            if disks_port and not record.adopted and not record.released:
                self._ports.adopt(disks_owner(record.attempt), disks_port)

    @property
    def records(self) -> tuple[IncomingRecord, ...]:
        """All attempts that are known now."""
        return tuple(self._records.values())

    async def prepare(self, request: PrepareRequest) -> PrepareReply:
        """Check everything, then reserve. Repeated for the same attempt it renews the lease.

        All findings come at once, within 5 s; a check that did not answer is a finding too.
        """
        async with self._lock(request.attempt):
            known = self._records.get(request.attempt)
            if known is not None and known.reservation is not None and not known.adopted:
                return self._reply(await self._save(known, expires=self._lease_end()))
            if known is not None and known.adopted:
                return PrepareReply(findings=("the guest of this attempt has arrived already",))
            try:
                async with deadline("identifying the guest", CHECKS_DEADLINE_S):
                    uuid = await self._hooks.identify(request)
            except LauncherError as error:
                return PrepareReply(findings=(str(error),), node=self._node)
            await self._supersede(request, uuid)
            findings = (*self._clashes(request.attempt, uuid), *await self._check(request))
            if findings:
                return PrepareReply(findings=findings, node=self._node)
            if self._full(request.attempt):
                return self._busy()
            return await self._reserve(request, uuid)

    async def finish(
        self,
        attempt: str,
        *,
        succeeded: bool,
        reason: str = "",
        reclaim: bool = False,
        discard: bool = False,
    ) -> TargetState:
        """The source's verdict. Adopts a guest that arrived, whatever the verdict; else lets go of all.

        With ``reclaim`` what came over is ended instead: the guest runs on the source. With ``discard`` half
        a guest is ended, that waits for memory which nobody has.

        Raises:
            HypervisorUnavailable, TimedOut: libvirt cannot be asked now; nothing was changed but that a guest
                that was reclaimed cannot begin to run here any more.
        """
        async with self._lock(attempt):
            record = self._records.get(attempt)
            if record is None:
                return TargetState(attempt=attempt, known=False)
            if record.released and (reclaim or discard):
                return TargetState(attempt=attempt, known=True)
            if reclaim:
                return await self._reclaim(await self._save(record, reclaimed=True))
            if discard or (record.discarded and not record.adopted):
                return await self._discard(await self._save(record, discarded=True))
            domain = await self._domain(record.uuid)
            side = target_side(state_of(record, domain))
            if record.released:
                return state_of(record, domain)
            if domain is not None and (side is Side.ACTIVE or (succeeded and side is Side.ENDED)):
                return await self._adopt(record, domain)
            if side in HALVES or (succeeded and side is Side.INCOMING):
                return state_of(record, domain)  # Not decided yet: the source asks again.
            if not succeeded:
                return await self._leavings.let_go(record, domain)
            return state_of(record, domain)

    async def state(self, attempt: str) -> TargetState:
        """What is here of ``attempt``; asking changes nothing.

        Raises:
            HypervisorUnavailable, TimedOut: libvirt cannot be asked now.
        """
        record = self._records.get(attempt)
        if record is None:
            return TargetState(attempt=attempt, known=False)
        return state_of(record, await self._domain(record.uuid))

    async def interrupt(self, attempt: str) -> TargetState:
        """End the connections of a guest that waits for memory; does nothing to any other.

        Raises:
            LauncherError: they could not be ended.
        """
        async with self._lock(attempt):
            record = self._records.get(attempt)
            if record is None:
                return TargetState(attempt=attempt, known=False)
            state = state_of(record, await self._domain(record.uuid))
            if target_side(state) in HALVES and not record.adopted:
                async with deadline("ending the connections of the stream", ACT_DEADLINE_S):
                    await self._hooks.cut(record)
            return state

    async def reopen(self, attempt: str) -> TargetState:
        """Have QEMU wait for a new connection of a guest that waits for memory; does nothing to any other.

        Raises:
            LauncherError: it does not, or is not asked because its stream is not known to be interrupted.
        """
        async with self._lock(attempt):
            record = self._records.get(attempt)
            if record is None:
                return TargetState(attempt=attempt, known=False)
            state = state_of(record, await self._domain(record.uuid))
            if target_side(state) in HALVES and not record.adopted:
                async with deadline("waiting for a new stream", ACT_DEADLINE_S):
                    uri = self._endpoints(attempt, record.port, _landing(record)).migrate_uri
                    await self._hooks.reopen(record, uri)
            return state

    async def arrived(self, uuid: str) -> None:
        """libvirt says that a guest runs here now: adopt it without waiting for the source's word.

        Raises:
            HypervisorUnavailable, TimedOut: libvirt cannot be asked now; nothing was changed.
        """
        for record in self.records:
            if record.uuid != uuid or record.adopted or record.released:
                continue
            async with self._lock(record.attempt):
                current = self._records.get(record.attempt)
                domain = await self._domain(uuid)
                if current is None or domain is None:
                    continue
                if current.reclaimed:
                    await self._leavings.end_copy(current, domain)
                    continue
                if target_side(state_of(current, domain)) is Side.ACTIVE:
                    await self._adopt(current, domain)

    async def sweep(self) -> None:
        """Deal with leases that ran out; call it every few seconds.

        A guest that arrived is adopted, one that is loading keeps its lease, else all is released.
        """
        for record in self.records:
            if self._clock.monotonic() < record.expires:
                continue
            async with self._lock(record.attempt):
                current = self._records.get(record.attempt)
                if current is None or self._clock.monotonic() < current.expires:
                    continue
                try:
                    await self._expire(current)
                except LauncherError:
                    continue  # libvirt or the agent could not do it now; the next sweep tries again.

    def _lock(self, attempt: str) -> asyncio.Lock:
        lock = self._locks.get(attempt)
        if lock is None:
            lock = self._locks[attempt] = asyncio.Lock()
        return lock

    def _lease_end(self) -> float:
        return self._clock.monotonic() + LEASE_S

    def _others(self, attempt: str) -> list[IncomingRecord]:
        return [
            r for r in self._records.values() if r.attempt != attempt and not r.adopted and not r.released
        ]

    def _clashes(self, attempt: str, uuid: str) -> tuple[str, ...]:
        """What this module knows by itself: a second attempt for the guest."""
        return tuple(
            f"the guest is the subject of another incoming migration ({other.attempt})"
            for other in self._others(attempt)
            if other.uuid == uuid
        )

    async def _supersede(self, request: PrepareRequest, uuid: str) -> None:
        """Let go of an earlier attempt of the same source for the same guest: its end was not heard here.

        A source has one attempt for a guest at a time. What arrived, or runs already, stays and is a finding.
        """
        for old in self._others(request.attempt):
            if old.uuid != uuid or old.source_node != request.source_node:
                continue
            async with self._lock(old.attempt):
                with contextlib.suppress(LauncherError):  # Then it stays, and says so.
                    domain = await self._domain(uuid)
                    if target_side(state_of(old, domain)) not in {Side.ACTIVE, *HALVES}:
                        await self._leavings.let_go(old, domain)

    def _full(self, attempt: str) -> bool:
        return len(self._others(attempt)) >= self._inbound

    def _busy(self) -> PrepareReply:
        finding = f"this node takes {self._inbound} incoming migrations at a time"
        return PrepareReply(findings=(finding,), busy=True, node=self._node)

    async def _check(self, request: PrepareRequest) -> tuple[str, ...]:
        results = await asyncio.gather(*(self._one_check(check, request) for check in self._checks))
        return tuple(finding for result in results for finding in result)

    async def _one_check(self, check: Check, request: PrepareRequest) -> tuple[str, ...]:
        try:
            async with deadline(f"the check of {check.name}", CHECKS_DEADLINE_S):
                return await check.run(request)
        except LauncherError as error:
            return (f"{check.name}: {error}",)

    async def _reserve(self, request: PrepareRequest, uuid: str) -> PrepareReply:
        attempt = request.attempt
        findings = self._clashes(attempt, uuid)  # Again: another attempt may have come during the checks.
        if findings:
            return PrepareReply(findings=findings, node=self._node)
        if self._full(attempt):
            return self._busy()
        try:
            port = self._ports.allocate(attempt)
        except LauncherError as error:
            return PrepareReply(findings=(str(error),), node=self._node)
        # Written first: a crash in the middle of reserving leaves something to release.
        record = await self._save(
            IncomingRecord(
                attempt=attempt,
                source_node=request.source_node,
                uuid=uuid,
                port=port,
                expires=self._lease_end(),
            )
        )
        try:
            async with deadline("reserving for the guest", RESERVE_DEADLINE_S):
                reservation = await self._hooks.reserve(request)
        except LauncherError as error:
            with contextlib.suppress(LauncherError):  # What is left is released when the lease runs out.
                await self._leavings.release(record)
            return PrepareReply(findings=(str(error),), node=self._node)
        return self._reply(await self._save(record, reservation=reservation, expires=self._lease_end()))

    def _reply(self, record: IncomingRecord) -> PrepareReply:
        endpoints = self._endpoints(record.attempt, record.port, _landing(record))
        reservation = record.reservation or Reservation(uuid=record.uuid)
        return PrepareReply(
            node=self._node,
            destination_uri=endpoints.destination_uri,
            migrate_uri=endpoints.migrate_uri,
            disks_uri=endpoints.disks_uri,
            tls_destination=_landing(record).server,
            destination_xml=reservation.destination_xml,
            persistent_xml=reservation.persistent_xml,
            lease_s=LEASE_S,
        )

    async def _save(self, record: IncomingRecord, **changes: object) -> IncomingRecord:
        record = msgspec.structs.replace(record, **changes)
        self._records[record.attempt] = record  # First: whoever looks while the journal writes must see it.
        await self._journal.save(record)
        return record

    async def _forget_soon(self, record: IncomingRecord) -> None:
        """Nothing is held any more; the source may ask for a while."""
        until = self._clock.monotonic() + REMEMBER_S
        await self._save(record, released=True, adopted=False, reservation=None, port=0, expires=until)

    async def _domain(self, uuid: str) -> DomainRecord | None:
        try:
            async with deadline("asking libvirt for the domain", READ_DEADLINE_S):
                return await self._hypervisor.domain(uuid)
        except NotFound:
            return None

    async def _adopt(self, record: IncomingRecord, domain: DomainRecord) -> TargetState:
        if not record.adopted:
            await self._hooks.adopt(record, domain)
            until = self._clock.monotonic() + REMEMBER_S
            record = await self._save(record, adopted=True, reservation=None, expires=until)
            self._ports.release(record.attempt)
        return state_of(record, domain)

    async def _reclaim(self, record: IncomingRecord) -> TargetState:
        try:
            domain = await self._domain(record.uuid)
        except LauncherError:
            await self._hooks.fence(record)
            raise
        return await self._leavings.end_copy(record, domain)

    async def _discard(self, record: IncomingRecord) -> TargetState:
        domain = await self._domain(record.uuid)
        if domain is not None and target_side(state_of(record, domain)) is Side.ACTIVE:
            return await self._adopt(record, domain)  # One that is whole has nobody else any more.
        return await self._leavings.discard(record, domain)

    async def _expire(self, record: IncomingRecord) -> None:
        if record.released or record.adopted:
            del self._records[record.attempt]
            await self._journal.forget(record.attempt)
            return
        domain = await self._domain(record.uuid)
        if record.reclaimed:
            await self._leavings.end_copy(record, domain)
            return
        if record.discarded:
            await self._discard(record)
            return
        side = target_side(state_of(record, domain))
        if domain is not None and side is Side.ACTIVE:
            await self._adopt(record, domain)
        elif side in {Side.INCOMING, *HALVES}:
            await self._save(record, expires=self._lease_end())
        else:
            await self._leavings.let_go(record, domain)


def _landing(record: IncomingRecord) -> Landing:
    return record.reservation.landing if record.reservation is not None else Landing()
