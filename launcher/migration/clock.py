# SPDX-License-Identifier: Apache-2.0
"""The time of a migration: a clock that never steps, for durations, and the time of day for people.

Only the port: the agent hands in the clocks of the machine.
"""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """Waiting itself is the event loop's business; its time and ``monotonic`` are the same."""

    def monotonic(self) -> float:
        """Seconds since the host started; comparable between processes of one boot."""

    def now(self) -> str:
        """The time of day, RFC 3339 in UTC, to the second."""
