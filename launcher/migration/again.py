# SPDX-License-Identifier: Apache-2.0
"""Whether a migration that failed is tried a second time, and over which network. Pure; nothing runs here.

Only what is nobody's fault and leaves the guest on the source is tried again, once, in the same migration: a
libvirtd that restarted (over the same network), and a link that carried nothing (over another one).
"""

from __future__ import annotations

from collections.abc import Sequence

from launcher.migration.attempt import AttemptRecord, Earlier, Phase, StepTaken, Transition
from launcher.migration.cause import Cause


def again(record: AttemptRecord, networks: Sequence[str], *, at: str) -> AttemptRecord | None:
    """The record of the second attempt; None when ``record`` does not call for one.

    ``networks`` are the migration networks of this node by name, the usual one by the empty name; ``at`` is
    the time of day (RFC 3339).
    """
    if record.phase is not Phase.FAILED or record.report is None:
        return None
    if record.earlier or record.cancel or record.by_hand or record.post_copy:
        return None
    if record.outgoing.migration_id:
        return None  # The other end's object has ended with the attempt.
    network = _network(record, networks)
    if network is None:
        return None
    over = f", over the network {network or 'migration.address'}" if network != record.network else ""
    step = StepTaken(
        t=(record.report.total_ms or 0) / 1000,
        action="second attempt",
        reason=f"{record.cause.value}: {record.reason}{over}",
    )
    return AttemptRecord(
        outgoing=record.outgoing,
        phase=Phase.PREPARING_TARGET,
        transitions=(
            *(told for told in record.transitions if not told.phase.final),
            Transition(phase=Phase.PREPARING_TARGET, at=at),
        ),
        steps=(*record.steps, step),
        over=network,
        earlier=(Earlier(cause=record.cause, reason=record.reason, at=at, report=record.report),),
        untold=record.untold,
    )


def _network(record: AttemptRecord, networks: Sequence[str]) -> str | None:
    """The network of the second attempt; None: there is no sense in one."""
    if record.cause is Cause.INTERRUPTED:
        return record.network
    if record.cause is not Cause.LINK:
        return None
    # The usual one is every node's; of the others it is only known that this node has them.
    others = sorted((name for name in networks if name != record.network), key=bool)
    return others[0] if others else None
