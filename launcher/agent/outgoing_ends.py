# SPDX-License-Identifier: Apache-2.0
"""Ends of outgoing migrations that are not their engine's: before it began, and as they are shown. Pure."""

from __future__ import annotations

import msgspec

from launcher.agent.migration_status import OutgoingEntry
from launcher.migration.attempt import AttemptRecord, Cause, Phase, Transition
from launcher.migration.progress import MigrationReport


def before_the_end(entry: OutgoingEntry) -> OutgoingEntry:
    """The entry as it is shown while its end is settled: it runs."""
    transitions = tuple(t for t in entry.attempt.transitions if not t.phase.final)
    phase = transitions[-1].phase if transitions else Phase.PENDING
    attempt = msgspec.structs.replace(entry.attempt, phase=phase, transitions=transitions, report=None)
    return msgspec.structs.replace(entry, attempt=attempt)


def failed(attempt: AttemptRecord, cause: Cause, reason: str, *, at: str) -> AttemptRecord:
    """The record of an attempt that fails before its engine did anything."""
    return msgspec.structs.replace(
        attempt,
        phase=Phase.FAILED,
        cause=cause,
        reason=reason,
        transitions=(*attempt.transitions, Transition(phase=Phase.FAILED, at=at)),
        report=MigrationReport(succeeded=False, reason=reason),
    )


def ended(attempt: AttemptRecord) -> bool:
    """Nothing is left to do: it failed, or it succeeded and the target confirmed."""
    return attempt.phase is Phase.FAILED or (attempt.phase is Phase.SUCCEEDED and attempt.confirmed)
