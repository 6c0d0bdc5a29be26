# SPDX-License-Identifier: Apache-2.0
"""Recorded series and what the policies decide; series are made here from a rule, decisions are known."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from launcher.errors import InvalidRequest
from launcher.migration.replay import ReplayLine, read_series, replay

GIB = 1 << 30
Line = tuple[int, int, str, int | None, str]


def series(options: dict[str, Any], samples: list[dict[str, Any]]) -> bytes:
    return msgspec.json.encode({"name": "made", "options": options, "samples": samples})


def converging(count: int, *, floor: int, bandwidth: int) -> list[dict[str, Any]]:
    """A pass every 2 s (the last of five polls is at its boundary); what remains falls to ``floor``."""
    remaining, samples = 4 * GIB, []
    for number in range(count):
        boundary = number % 5 == 4
        samples.append(
            {
                "elapsedMs": 400 * number,
                "remainingBytes": remaining,
                "memBps": bandwidth,
                "iteration": 1 + (number + 1) // 5,
                "boundary": boundary,
            }
        )
        remaining = max(int(remaining * 0.9), floor)
    return samples


def lines(text: bytes, policy: str = "") -> list[Line]:
    return [
        (line.step, line.now_ms, call.call, call.value, line.action)
        for line in replay(read_series(text), policy=policy)
        for call in line.calls
    ]


PLATEAU = converging(300, floor=500_000_000, bandwidth=500_000_000)
FIRST: Line = (0, 0, "MigrateSetMaxDowntime", 300, "")


def test_the_ramp_of_a_legacy_series() -> None:
    got = lines(series({"guestMemory": "4Gi", "legacy": True, "downtimeTuning": {}}, PLATEAU))
    assert [(now, value) for _, now, _, value, _ in got] == [
        (0, 150),
        (10000, 257),
        (20000, 364),
        (30000, 471),
        (40000, 578),
        (50000, 685),
        (60000, 792),
        (70000, 899),
        (80000, 900),
    ]


def test_a_legacy_series_without_tuning_sets_nothing() -> None:
    assert lines(series({"guestMemory": "4Gi", "legacy": True}, PLATEAU)) == []


def test_progress_that_stops_in_a_legacy_series() -> None:
    stuck = [{"elapsedMs": 400 * n, "remainingBytes": GIB, "iteration": 1} for n in range(60)]
    got = lines(series({"guestMemory": "4Gi", "legacy": True, "progressTimeout": 10}, stuck))
    assert got == [(28, 11200, "AbortJob", None, "")]


@pytest.mark.parametrize(
    ("options", "call", "value", "action"),
    [
        ({"maxDowntimeMs": 100}, "AbortJob", None, "abort"),
        ({}, "MigrateSetMaxDowntime", 900, "softStopAndCopy"),
        ({"allowWorkloadDisruption": True}, "MigrateSetMaxDowntime", 2_000_000, "hardStopAndCopy"),
        ({"allowPostCopy": True}, "MigrateStartPostCopy", None, "postCopy"),
        ({"allowPostCopy": True, "hasVFIO": True}, "MigrateSetMaxDowntime", 2_000_000, "hardStopAndCopy"),
    ],
)
def test_the_stall_detector_at_a_plateau(
    options: dict[str, Any], call: str, value: int | None, action: str
) -> None:
    got = lines(series({"guestMemory": "4Gi", **options}, PLATEAU))
    assert got[0][3] == min(300, options.get("maxDowntimeMs", 300))
    assert got[1][2:] == (call, value, action)
    # The last candidate leaves the window 40 s after the plateau was reached.
    assert 48_000 <= got[1][1] <= 52_000


def test_a_completion_timeout_given_in_seconds() -> None:
    falling = converging(125, floor=1, bandwidth=1000)
    got = lines(series({"acceptableCompletionTime": 30}, falling))
    assert got == [FIRST, (78, 31200, "AbortJob", None, "")]


def test_a_series_without_statistics() -> None:
    silent = [{"elapsedMs": 1000 * n, "noStats": True} for n in range(10)]
    assert lines(series({"acceptableCompletionTime": 5}, silent)) == [FIRST, (6, 6000, "AbortJob", None, "")]


def test_detector_options_are_read() -> None:
    options = {"guestMemory": "4Gi", "stallDetector": {"stallProgressTimeout": 5, "ewmaAlpha": "0.2"}}
    got = lines(series(options, PLATEAU))
    assert got[1][1] < 20_000


def test_any_policy_can_be_asked_about_a_series() -> None:
    got = lines(series({"guestMemory": "4Gi"}, PLATEAU), policy="standard")
    assert got[0] == (0, 0, "MigrateSetMaxDowntime", 150, "")


def test_lines_are_objects_of_the_recorded_form() -> None:
    line = ReplayLine(step=3, now_ms=1200, calls=(), reason="why")
    assert msgspec.json.encode(line) == b'{"step":3,"nowMs":1200,"calls":[],"reason":"why"}'


@pytest.mark.parametrize("text", [b"{", b"[]", b'{"samples":[{}]}', b'{"samples":[{"elapsedMs":"x"}]}'])
def test_what_is_no_series_is_refused(text: bytes) -> None:
    with pytest.raises(InvalidRequest):
        read_series(text)
