# SPDX-License-Identifier: Apache-2.0
"""The time of a migration: one clock that never steps, for durations, and the time of day for people."""

from __future__ import annotations

import datetime
import time
from typing import Protocol


class Clock(Protocol):
    """Waiting itself is the event loop's business; its time and ``monotonic`` are the same."""

    def monotonic(self) -> float:
        """Seconds since the host started; comparable between processes of one boot."""

    def now(self) -> str:
        """The time of day, RFC 3339 in UTC, to the second."""


class SystemClock:
    """The host's clocks."""

    def monotonic(self) -> float:
        """See ``Clock``."""
        return time.monotonic()

    def now(self) -> str:
        """See ``Clock``."""
        return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
