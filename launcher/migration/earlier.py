# SPDX-License-Identifier: Apache-2.0
"""Ends what a target has of an attempt before the present one: only then may the guest be sent again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from launcher.errors import LauncherError
from launcher.migration.clock import Clock
from launcher.migration.deadline import deadline
from launcher.migration.ledger import Ledger
from launcher.migration.peer import Peer
from launcher.migration.resolve import heard

AWAY_S = 30.0
"""So long a target is told whose agent, or libvirtd, does not answer: it may be restarting."""
AGAIN_S = 1.0
DEADLINE_S = 10.0


async def let_go(ledger: Ledger, peer: Peer, clock: Clock, pause: Callable[[float], Awaitable[bool]]) -> bool:
    """Tell the target until it has heard it; False: it has not, or somebody wants the attempt cancelled."""
    gives_up = clock.monotonic() + AWAY_S
    while ledger.record.untold:
        if ledger.record.cancel or clock.monotonic() > gives_up:
            return False
        token, reason = ledger.record.tokens[-2], ledger.record.earlier[-1].reason
        try:
            async with deadline("telling the target of the earlier attempt", DEADLINE_S):
                answer = await peer.finish(token, succeeded=False, reason=reason, reclaim=True)
        except LauncherError:
            answer = None
        if heard(answer):
            await ledger.change(untold=False)
        else:
            await pause(AGAIN_S)
    return True
