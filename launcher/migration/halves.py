# SPDX-License-Identifier: Apache-2.0
"""Gives up a guest of which one half is proven to be gone. Whether it is, is the resolver's to find out."""

from __future__ import annotations

from launcher.migration.cause import Cause
from launcher.migration.ledger import Ledger
from launcher.migration.ownership import Verdict
from launcher.migration.reasons import given_up
from launcher.migration.resolve import Resolved, Resolver

OVER = frozenset({Verdict.HALF_LOST, Verdict.GUEST_ENDED, Verdict.LOST})
"""Nothing of the guest is left that could run."""


async def give_up(ledger: Ledger, resolver: Resolver, resolved: Resolved, reason: str) -> Resolved:
    """End what is left of the guest. The end is written down before it is made, for a process that goes on.

    Raises:
        HypervisorUnavailable: the source's own libvirt cannot be asked; call it again when it can.
    """
    if not ledger.record.given_up:
        cause, why = given_up(resolved, reason)
        ledger.step_taken("end what is left of the guest", why)
        await ledger.change(given_up=why, cause=cause)
    resolved = await resolver.end_halves(reason=ledger.record.given_up)
    if resolved.verdict not in OVER:
        await ledger.change(given_up="", cause=Cause.NONE)
    return resolved
