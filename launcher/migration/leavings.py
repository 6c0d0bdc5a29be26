# SPDX-License-Identifier: Apache-2.0
"""Ends on a target what came of a guest that is not, or not wholly, its own, and lets go of the reservation.

Whether that may be done is not decided here, but what may never be: a guest that is whole is ended only when
it came by this migration and runs on its source, too.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from launcher.hypervisor.port import DomainRecord, DomainState
from launcher.migration.deadline import deadline
from launcher.migration.domains import Domains
from launcher.migration.ownership import TargetSide as Side
from launcher.migration.ownership import target_side
from launcher.migration.peer import TargetState
from launcher.migration.ports import PortPool
from launcher.migration.reservation import IncomingRecord, TargetHooks

ACT_DEADLINE_S = 30.0


class Leavings:
    """What is left of attempts whose guests do not stay. ``released`` is told of each that is let go of."""

    def __init__(
        self,
        hypervisor: Domains,
        hooks: TargetHooks,
        ports: PortPool,
        released: Callable[[IncomingRecord], Awaitable[None]],
    ) -> None:
        self._hypervisor = hypervisor
        self._hooks = hooks
        self._ports = ports
        self._released = released

    async def end_copy(self, record: IncomingRecord, domain: DomainRecord | None) -> TargetState:
        """End what came over of a guest that its source has, too. A domain that came otherwise stays."""
        if domain is not None:
            came = domain.state is DomainState.RUNNING and domain.reason == "migrated"
            side = target_side(state_of(record, domain))
            if not came and side not in (Side.INCOMING, Side.ENDED):
                return state_of(record, domain)
            async with deadline("ending a copy of the guest", ACT_DEADLINE_S):
                if domain.state is not DomainState.SHUTOFF:  # A guest that crashed may have its QEMU still.
                    await self._hypervisor.destroy(record.uuid, graceful=False)
                await self._hypervisor.undefine(record.uuid)
        await self.release(record)
        return TargetState(attempt=record.attempt, known=True)

    async def discard(self, record: IncomingRecord, domain: DomainRecord | None) -> TargetState:
        """End half a guest, or what is left of one that its source gave up. One that is whole stays."""
        state = state_of(record, domain)
        if record.adopted or target_side(state) is Side.ACTIVE:
            return state
        if domain is not None:
            async with deadline("ending half of a guest", ACT_DEADLINE_S):
                if domain.state is not DomainState.SHUTOFF:
                    await self._hypervisor.destroy(record.uuid, graceful=False)
                await self._hypervisor.undefine(record.uuid)
        await self._hooks.fence(record)  # A process that libvirt lost must not outlive what is told now.
        await self.release(record)
        return TargetState(attempt=record.attempt, known=True)

    async def let_go(self, record: IncomingRecord, domain: DomainRecord | None) -> TargetState:
        """End an incoming domain that never ran, forget one that ended, and release. Adopted ones stay."""
        if record.adopted or record.released:
            return state_of(record, domain)
        if domain is not None:
            async with deadline("ending the incoming domain", ACT_DEADLINE_S):
                if target_side(state_of(record, domain)) is Side.INCOMING:
                    await self._hypervisor.destroy(record.uuid, graceful=False)
                await self._hypervisor.undefine(record.uuid)
        await self.release(record)
        return TargetState(attempt=record.attempt, known=True)

    async def release(self, record: IncomingRecord) -> None:
        """Give the reservation back; nothing of the guest is here."""
        await self._hooks.release(record)
        self._ports.release(record.attempt)
        await self._released(record)


def state_of(record: IncomingRecord, domain: DomainRecord | None) -> TargetState:
    """What the source is told of an attempt."""
    return TargetState(
        attempt=record.attempt,
        known=True,
        domain=domain.state.value if domain else "",
        reason=domain.reason if domain else "",
        adopted=record.adopted,
    )
