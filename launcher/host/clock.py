# SPDX-License-Identifier: Apache-2.0
"""The machine's clocks: a monotonic one for durations and UTC for records. What needs one has it passed in
(``migration.clock.Clock``); tests pass their own."""

from __future__ import annotations

import time
from datetime import UTC, datetime


class SystemClock:
    """The machine's clocks."""

    def monotonic(self) -> float:
        """Seconds from an unknown start."""
        return time.monotonic()

    def now(self) -> str:
        """The time of day as RFC 3339."""
        return rfc3339(datetime.now(UTC))


def rfc3339(moment: datetime, *, micro: bool = False) -> str:
    """``moment`` (aware) in UTC with ``Z``, as Kubernetes writes metav1.Time, or MicroTime with ``micro``."""
    text = moment.astimezone(UTC).isoformat(timespec="microseconds" if micro else "seconds")
    return text.removesuffix("+00:00") + "Z"
