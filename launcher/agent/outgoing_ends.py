# SPDX-License-Identifier: Apache-2.0
"""Ends of outgoing migrations but for their engine's: before it began, as shown, and what follows. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Set

import msgspec

from launcher.agent.migration_status import OutgoingEntry
from launcher.agent.settlement import HANDS_OFF
from launcher.errors import WrongPhase
from launcher.migration.attempt import AttemptRecord, Cause, Phase, Transition
from launcher.migration.progress import MigrationReport

KEPT = 100
"""Migrations that are over and remembered; older ones are dropped."""


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


def require_in_doubt(key: str, attempt: AttemptRecord) -> None:
    """Raises WrongPhase: it did not end in doubt, or the guest was given up since."""
    if attempt.phase is Phase.FAILED and attempt.cause in HANDS_OFF and not attempt.discarded:
        return
    state = "given up" if attempt.discarded else attempt.cause.value or attempt.phase.value
    raise WrongPhase(
        f"{key} cannot be recovered: it is {state}",
        hint=f"only what ended as {', '.join(sorted(HANDS_OFF))} can, while its instance is there",
    )


def over(attempt: AttemptRecord, held: Set[str]) -> bool:
    """It ended, no instance is tied to it (the attempts of ``held`` are), and the target has heard all."""
    return ended(attempt) and attempt.attempt not in held and not attempt.untold


def outdated(entries: Iterable[OutgoingEntry], held: Set[str]) -> tuple[OutgoingEntry, ...]:
    """Those to forget, the oldest first."""
    found = [entry for entry in entries if over(entry.attempt, held)]
    found.sort(key=lambda e: e.attempt.transitions[-1].at if e.attempt.transitions else "")
    return tuple(found[: max(0, len(found) - KEPT)])
