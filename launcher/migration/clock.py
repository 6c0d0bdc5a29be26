# SPDX-License-Identifier: Apache-2.0
"""What migrations and the agent need of time: a clock that never steps, and the time of day for people.

Only the port: the clocks of the machine (``host.clock``) are handed in.
"""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """Waiting itself is the event loop's business; its time and ``monotonic`` are the same."""

    def monotonic(self) -> float:
        """Seconds since the host started; comparable between processes of one boot."""

    def now(self) -> str:
        """The time of day, RFC 3339 in UTC, to the second."""
