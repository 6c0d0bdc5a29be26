# SPDX-License-Identifier: Apache-2.0
"""The one place where the record of an attempt changes: in memory and in the journal, in that order.

A journal that fails stops a migration that has not begun; one that runs goes on without it, because
its guest is worth more than its record.
"""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from launcher.errors import LauncherError
from launcher.migration.attempt import AttemptRecord, Cause, Phase, StepTaken, Transition
from launcher.migration.clock import Clock
from launcher.migration.deadline import deadline

SAVE_DEADLINE_S = 5.0
"""A store that hangs while a job runs is one that fails: a guest is not left stopped for the sake of its
record. Much less than an action has (``monitor.ACTION_DEADLINE_S``), which is written down first."""


class Journal(Protocol):
    """Where records outlive the process."""

    async def save(self, record: AttemptRecord) -> None:
        """Make ``record`` durable; it replaces the one of the same attempt."""


class Ledger:
    """The current record of one attempt."""

    def __init__(self, record: AttemptRecord, journal: Journal, clock: Clock) -> None:
        self._record = record
        self._journal = journal
        self._clock = clock
        self.journal_error = ""

    @property
    def record(self) -> AttemptRecord:
        """The record now."""
        return self._record

    @property
    def elapsed(self) -> float:
        """Seconds since the job began, 0 before."""
        began = self._record.job_began
        return 0.0 if began is None else max(self._clock.monotonic() - began, 0.0)

    def note(self, **changes: Any) -> None:
        """Change fields in memory; the next ``save`` writes them."""
        self._record = msgspec.structs.replace(self._record, **changes)

    async def save(self) -> None:
        """Write the record down."""
        waits = self._record.phase in (Phase.PENDING, Phase.PREPARING_TARGET, Phase.TARGET_READY)
        try:
            if waits:
                await self._journal.save(self._record)
            else:
                async with deadline("writing the migration down", SAVE_DEADLINE_S):
                    await self._journal.save(self._record)
        except LauncherError as error:
            self.journal_error = str(error)
            if waits:
                raise
        else:
            self.journal_error = ""

    async def change(self, **changes: Any) -> None:
        """``note`` and ``save``."""
        self.note(**changes)
        await self.save()

    async def enter(self, phase: Phase, **changes: Any) -> None:
        """Go to ``phase`` with a time stamp; entering the same phase again only saves."""
        if phase is not self._record.phase or not self._record.transitions:
            stamp = Transition(phase=phase, at=self._clock.now())
            changes = {**changes, "phase": phase, "transitions": (*self._record.transitions, stamp)}
        await self.change(**changes)

    async def fail(self, cause: Cause, reason: str, **changes: Any) -> None:
        """End in ``Failed``."""
        await self.enter(Phase.FAILED, cause=cause, reason=reason, **changes)

    def step_taken(self, action: str, reason: str) -> None:
        """Remember an action of the policy or the engine."""
        step = StepTaken(t=round(self.elapsed, 3), action=action, reason=reason)
        self.note(steps=(*self._record.steps, step))
