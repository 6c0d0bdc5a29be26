# SPDX-License-Identifier: Apache-2.0
"""A recording as curves over time: what remained, what flowed, what was allowed. Draws nothing. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import msgspec

from launcher.migration.options import QEMU_MAX_DOWNTIME_MS
from launcher.migration.policy import Abort, Action, BreakPostCopy, PauseGuest, SetMaxDowntime
from launcher.migration.recording import Recording, StepName
from launcher.migration.series import Series

Point = tuple[float, float]
_STEPS: dict[StepName, str] = {
    "copy": "copy",
    "pivot": "change over to the copy of",
    "drop": "drop the copy of",
}


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """Something that was done ``t`` seconds after the job began."""

    t: float
    text: str
    reason: str


class Curves(msgspec.Struct, frozen=True, kw_only=True):
    """Points are (seconds, value): bytes, bytes per second and milliseconds. ``passes`` are the times at
    which one began, ``post_copy`` when the guest was first seen to run on the target, None: never.
    ``seconds`` is the length of the whole. The curve of the downtime limit ends where it was lifted to stop
    the guest: what is beyond is no limit, and would leave nothing to be seen of the others.
    """

    title: str
    outcome: str
    seconds: float
    remaining: tuple[Point, ...]
    bandwidth: tuple[Point, ...]
    dirty_rate: tuple[Point, ...]
    downtime_limit: tuple[Point, ...]
    passes: tuple[float, ...]
    marks: tuple[Mark, ...]
    post_copy: float | None


def curves(recording: Recording) -> Curves:
    """The curves of a recording."""
    series = Series()
    bandwidth, passes = [], []
    for sample in recording.samples:
        series.add(sample)
        rate = series.bandwidth() if sample.processed is not None else None
        if rate is not None:
            bandwidth.append((sample.t, rate))
        if sample.boundary:
            passes.append(sample.t)
    samples = recording.samples
    outcomes = recording.outcomes
    limit = [
        (outcome.t, float(outcome.action.ms))
        for outcome in outcomes
        if isinstance(outcome.action, SetMaxDowntime) and outcome.ok
    ]
    times = (*(s.t for s in samples), *(o.t for o in outcomes), *(s.t for s in recording.steps))
    seconds = max(times, default=0.0)
    lifted = next((t for t, ms in limit if ms >= QEMU_MAX_DOWNTIME_MS), seconds)
    return Curves(
        title=_title(recording),
        outcome=_outcome(recording),
        seconds=seconds,
        remaining=tuple((s.t, float(s.remaining)) for s in samples if s.remaining is not None),
        bandwidth=tuple(bandwidth),
        dirty_rate=tuple((s.t, float(s.dirty_rate)) for s in samples if s.dirty_rate is not None),
        downtime_limit=_steps([point for point in limit if point[1] < QEMU_MAX_DOWNTIME_MS], lifted),
        passes=tuple(passes),
        marks=_marks(recording),
        post_copy=next((s.t for s in samples if s.post_copy), None),
    )


def fewer(points: Sequence[Point], columns: int, seconds: float) -> tuple[Point, ...]:
    """At most about two points for each of ``columns``: the lowest and the highest, in order of time."""
    if len(points) <= 2 * columns or seconds <= 0:
        return tuple(points)
    found: list[Point] = []
    for _, group in groupby(points, key=lambda point: int(point[0] / seconds * columns)):
        here = tuple(group)
        low, high = min(here, key=lambda p: p[1]), max(here, key=lambda p: p[1])
        found += sorted({low, high})
    return tuple(found)


def action_text(action: Action) -> str:
    """An action in a few words."""
    match action:
        case SetMaxDowntime() if action.ms >= QEMU_MAX_DOWNTIME_MS:
            return "stop the guest"
        case SetMaxDowntime():
            return f"allow {action.ms} ms"
        case PauseGuest():
            return "pause the guest"
        case Abort():
            return "abort"
        case BreakPostCopy():
            return "interrupt post-copy"
        case _:
            return "start post-copy"


def _marks(recording: Recording) -> tuple[Mark, ...]:
    acts = [(o.t, action_text(o.action), o.action.reason, o.error) for o in recording.outcomes]
    acts += [(s.t, f"{_STEPS[s.step]} {s.volume}", s.reason, s.error) for s in recording.steps]
    return tuple(
        Mark(t=t, text=text + (" failed" if error else ""), reason=error or reason)
        for t, text, reason, error in sorted(acts, key=lambda act: act[0])
    )


def _steps(points: Sequence[Point], seconds: float) -> tuple[Point, ...]:
    """A value that holds until the next one."""
    found: list[Point] = []
    for place, (t, value) in enumerate(points):
        until = points[place + 1][0] if place + 1 < len(points) else max(seconds, t)
        found += [(t, value), (until, value)]
    return tuple(found)


def _title(recording: Recording) -> str:
    header = recording.header
    if not header.rules:
        return f"{header.migration}: volumes of {header.instance} on {header.source_node}"
    return f"{header.migration}: {header.instance} from {header.source_node} to {header.target_node}"


def _outcome(recording: Recording) -> str:
    end = recording.end
    if end is None:
        return "under way when it was recorded"
    report = end.report
    parts = [end.phase]
    if end.cause:
        parts.append(f"({end.cause})")
    if report is not None and report.total_ms is not None:
        parts.append(f"after {report.total_ms / 1000:.1f} s")
    if report is not None and report.downtime_ms is not None:
        parts.append(f"with {report.downtime_ms} ms of downtime")
    return " ".join(parts) + (f": {end.reason}" if end.reason else "")
