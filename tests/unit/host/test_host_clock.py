# SPDX-License-Identifier: Apache-2.0
"""Clocks and how their times are written."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

from launcher.host.clock import SystemClock, rfc3339
from launcher.migration.clock import Clock


def test_the_systems_clock() -> None:
    clock: Clock = SystemClock()
    first = clock.monotonic()
    assert clock.monotonic() >= first
    moment = datetime.strptime(clock.now(), "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    assert abs(datetime.now(UTC) - moment) < timedelta(minutes=1)


def test_written_as_kubernetes_does() -> None:
    moment = datetime(2026, 3, 1, 1, 2, 3, 40, tzinfo=timezone(timedelta(hours=2)))
    assert rfc3339(moment) == "2026-02-28T23:02:03Z"
    assert rfc3339(moment, micro=True) == "2026-02-28T23:02:03.000040Z"
