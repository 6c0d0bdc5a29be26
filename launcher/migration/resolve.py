# SPDX-License-Identifier: Apache-2.0
"""Brings an ended migration to exactly one owner: looks at both sides, acts by the table of ``ownership``.

It may be run again after a restart: every step looks first. It never resumes the source's guest without
proof that the target has none, and never forgets the source's domain without proof that the target has it.
libvirt resumes a source by itself when the target's libvirtd does not answer at the switch, and that one may
still run its copy later: a target is told that the guest is the source's (``reclaim``) until it has heard it.
"""

from __future__ import annotations

import asyncio

import msgspec

from launcher.errors import HypervisorUnavailable, LauncherError, NotFound
from launcher.hypervisor.port import DomainRecord, DomainState
from launcher.migration.clock import Clock
from launcher.migration.deadline import deadline
from launcher.migration.domains import Domains
from launcher.migration.ownership import SourceSide, TargetSide, Verdict, judge, source_side, target_side
from launcher.migration.peer import Peer, TargetState

RESOLVE_S = 60.0
"""How long to look for proof; KubeVirt gives the target the same to show its domain."""
PEER_DEADLINE_S = 10.0
FIRST_PAUSE_S = 0.2
LAST_PAUSE_S = 3.0
LASTING_S = 10.0
"""How long a guest must be seen on both sides, on none or as one half before that is believed."""
DROP_AFTER_S = 5.0
"""How long an incoming domain must be seen waiting, with a stopped source, before it is dropped: libvirt's
own hand-over takes milliseconds, and a domain that is about to run must not be destroyed."""


_BELIEVED_WHEN_LASTING = frozenset({Verdict.LOST, Verdict.CONFLICT, Verdict.HALF_LOST})
_LOOK_AGAIN = frozenset({Verdict.WAIT, Verdict.DROP_TARGET}) | _BELIEVED_WHEN_LASTING
_STOPPED = frozenset({SourceSide.SWITCHING, SourceSide.PAUSED, SourceSide.POST_COPY})
_SURE_TO_DROP = frozenset({SourceSide.RUNNING, SourceSide.ENDED})


class Resolved(msgspec.Struct, frozen=True, kw_only=True):
    """The owner as proven, and what was seen last. ``note`` is a sentence about what was done or is odd.

    ``told`` False: the guest is the source's, and the target does not know that yet.
    """

    verdict: Verdict
    source: SourceSide
    target: TargetSide
    source_reason: str = ""
    target_reason: str = ""
    note: str = ""
    told: bool = True


def heard(answer: TargetState | None) -> bool:
    """Whether a target that was told to give a guest up has nothing of it."""
    return answer is not None and (not answer.known or not answer.domain)


class Resolver:
    """Finds the owner of one guest. ``never_left``: libvirt aborted its job before it was handed over."""

    def __init__(
        self,
        hypervisor: Domains,
        peer: Peer,
        clock: Clock,
        *,
        attempt: str,
        uuid: str,
        never_left: bool = False,
    ) -> None:
        self._hypervisor = hypervisor
        self._peer = peer
        self._clock = clock
        self._attempt = attempt
        self._uuid = uuid
        self._never_left = never_left
        self._drop_seen: float | None = None
        self._dropping = False
        self._resume_error = ""

    async def resolve(self, *, suspended: bool, reason: str, limit_s: float = RESOLVE_S) -> Resolved:
        """Look and act until one side owns the guest, or ``limit_s`` passed (``Verdict.WAIT``).

        ``suspended``: the engine itself stopped the guest; ``reason`` is told to a target that is dropped.

        Raises:
            HypervisorUnavailable: the source's own libvirt cannot be asked.
        """
        ends = self._clock.monotonic() + limit_s
        pause = FIRST_PAUSE_S
        bad: tuple[Verdict, float] | None = None
        while True:
            resolved = await self._round(suspended=suspended, reason=reason)
            if resolved.verdict not in _LOOK_AGAIN:
                return resolved
            now = self._clock.monotonic()
            if resolved.verdict not in _BELIEVED_WHEN_LASTING:
                bad = None
            elif bad is None or bad[0] is not resolved.verdict:
                bad = (resolved.verdict, now)
            elif now - bad[1] >= LASTING_S:
                if resolved.verdict is Verdict.LOST:
                    # There is nothing left to keep there; one that does not hear it lets its lease run out.
                    await self._finish(succeeded=False, reason=reason)
                return resolved
            if now + pause > ends:
                return msgspec.structs.replace(resolved, verdict=Verdict.WAIT)
            await asyncio.sleep(pause)
            pause = min(pause * 2, LAST_PAUSE_S)

    async def _round(self, *, suspended: bool, reason: str) -> Resolved:
        record = await self._source()
        side = source_side(record, suspended=suspended)
        state = await self._ask(side, reason)
        target = target_side(state)
        verdict = self._verdict(side, target, adopted=state is not None and state.adopted)
        seen = Resolved(
            verdict=verdict,
            source=side,
            target=target,
            source_reason=record.reason if record else "gone",
            target_reason=state.reason if state is not None else "",
        )
        match verdict:
            case Verdict.RESUME_SOURCE:
                return await self._resume(seen, reason)
            case Verdict.TARGET_OWNS:
                if state is not None and state.adopted:
                    return await self._forget(seen)
                return msgspec.structs.replace(seen, verdict=Verdict.WAIT)
            case Verdict.DROP_TARGET:
                self._dropping = side in _SURE_TO_DROP or self._waited_to_drop()
            case Verdict.SOURCE_KEEPS:
                answer = await self._finish(succeeded=False, reason=reason, reclaim=True)
                return msgspec.structs.replace(seen, told=heard(answer))
            case Verdict.GUEST_ENDED:
                # A target that does not hear it lets its reservation run out; what ended there is its.
                await self._finish(succeeded=target is TargetSide.ENDED, reason=reason)
            case Verdict.CONFLICT if target is TargetSide.ACTIVE:
                # The source was seen first: only when it still runs are there two.
                if source_side(await self._source(), suspended=suspended) is SourceSide.RUNNING:
                    await self._finish(succeeded=False, reason=reason, reclaim=True)
            case _:
                self._drop_seen = None
        return seen

    def _verdict(self, side: SourceSide, target: TargetSide, *, adopted: bool) -> Verdict:
        if side in _STOPPED and target is TargetSide.ENDED and adopted:
            return (
                Verdict.TARGET_OWNS
            )  # It was whole there: what became of it since is no end of this migration.
        if side is SourceSide.PAUSED and target is TargetSide.UNREACHABLE and self._never_left:
            return Verdict.SOURCE_KEEPS
        return judge(side, target)

    async def end_halves(self, *, reason: str, limit_s: float = RESOLVE_S) -> Resolved:
        """End what is left of a guest of which one half is gone (``Verdict.HALF_LOST``), the target's first.

        Looks again before anything is ended; ``Verdict.WAIT`` when the target did not say in time that it has
        nothing more. May be repeated.

        Raises:
            HypervisorUnavailable: the source's own libvirt cannot be asked.
        """
        ends = self._clock.monotonic() + limit_s
        while True:
            seen = await self._round(suspended=False, reason=reason)
            if seen.verdict is not Verdict.HALF_LOST and seen.target is not TargetSide.UNREACHABLE:
                return seen
            if seen.verdict is Verdict.HALF_LOST:
                seen = await self._end_half(seen, reason)
                if seen.verdict is Verdict.HALF_LOST:
                    return seen
            if self._clock.monotonic() + LAST_PAUSE_S > ends:
                return msgspec.structs.replace(seen, verdict=Verdict.WAIT)
            await asyncio.sleep(LAST_PAUSE_S)

    async def _end_half(self, seen: Resolved, reason: str) -> Resolved:
        answer = await self._finish(succeeded=False, reason=reason, discard=True)
        if answer is None or not answer.known or answer.domain:
            return msgspec.structs.replace(seen, verdict=Verdict.WAIT)
        if seen.source is SourceSide.POST_COPY:
            try:
                async with deadline("ending the source's half of the guest", PEER_DEADLINE_S):
                    await self._hypervisor.destroy(self._uuid, graceful=False)
            except HypervisorUnavailable:
                raise
            except LauncherError as error:
                note = f"the source's half could not be ended: {error}"
                return msgspec.structs.replace(seen, verdict=Verdict.WAIT, note=note)
        return seen

    async def _source(self) -> DomainRecord | None:
        try:
            async with deadline("asking libvirt for the domain", PEER_DEADLINE_S):
                return await self._hypervisor.domain(self._uuid)
        except NotFound:
            return None

    async def _ask(self, side: SourceSide, reason: str) -> TargetState | None:
        """The target's state; tells it the outcome too where the source's side alone decides that."""
        if side in (SourceSide.MIGRATED, SourceSide.ABSENT):
            return await self._finish(succeeded=True, reason="")
        if self._dropping:
            self._dropping = False
            return await self._finish(succeeded=False, reason=reason)
        state = await self._state()
        if target_side(state) is TargetSide.ACTIVE and side is not SourceSide.RUNNING:
            return await self._finish(succeeded=True, reason="")
        return state

    async def _state(self) -> TargetState | None:
        try:
            async with deadline("asking the target for its state", PEER_DEADLINE_S):
                return await self._peer.state(self._attempt)
        except LauncherError:
            return None

    async def _finish(
        self, *, succeeded: bool, reason: str, reclaim: bool = False, discard: bool = False
    ) -> TargetState | None:
        try:
            async with deadline("telling the target the outcome", PEER_DEADLINE_S):
                return await self._peer.finish(
                    self._attempt, succeeded=succeeded, reason=reason, reclaim=reclaim, discard=discard
                )
        except LauncherError:
            return None

    def _waited_to_drop(self) -> bool:
        now = self._clock.monotonic()
        if self._drop_seen is None:
            self._drop_seen = now
        return now - self._drop_seen >= DROP_AFTER_S

    async def _resume(self, seen: Resolved, reason: str) -> Resolved:
        """The target has no domain: take the reservation back, let the guest run and see that it does."""
        state = await self._finish(succeeded=False, reason=reason)
        if target_side(state) is not TargetSide.NONE:
            return msgspec.structs.replace(seen, verdict=Verdict.WAIT)
        try:
            async with deadline("resuming the guest", PEER_DEADLINE_S):
                await self._hypervisor.resume(self._uuid)
        except HypervisorUnavailable:
            raise
        except LauncherError as error:
            self._resume_error = str(error)
        record = await self._source()
        if record is not None and record.state in (DomainState.RUNNING, DomainState.BLOCKED):
            note = "the guest was stopped for the migration and runs again on the source"
            return msgspec.structs.replace(seen, verdict=Verdict.SOURCE_KEEPS, note=note)
        note = f"the guest does not run again on the source: {self._resume_error or 'still stopped'}"
        return msgspec.structs.replace(seen, verdict=Verdict.WAIT, note=note)

    async def _forget(self, seen: Resolved) -> Resolved:
        """The target confirmed: end what is left of the source's domain and forget it."""
        try:
            async with deadline("forgetting the migrated domain", PEER_DEADLINE_S):
                if seen.source in _STOPPED:
                    await self._hypervisor.destroy(self._uuid, graceful=False)
                await self._hypervisor.undefine(self._uuid, keep_nvram=True)
        except HypervisorUnavailable:
            raise
        except LauncherError as error:
            note = f"the domain's definition is left on the source: {error}"
            return msgspec.structs.replace(seen, note=note)
        return seen
