# SPDX-License-Identifier: Apache-2.0
"""A migration as it goes: a live bar on a terminal, else one line every few seconds; then the report."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TextIO

from launcher.rpc.struct import to_plain
from launcher.units import human_bytes, human_ms
from launcher.v1.migrations_pb2 import Migration, MigrationProgress, MigrationReport

if TYPE_CHECKING:
    from rich.live import Live
    from rich.progress import Progress
    from rich.text import Text

LINE_EVERY_S = 5.0

FINISHED = frozenset({"Succeeded", "Failed"})


def phase(migration: Migration) -> str:
    """The migration's phase in the API's words."""
    found: str = to_plain(migration.object).get("status", {}).get("phase", "")
    return found or migration.progress.phase


def follow(views: Iterable[Migration], *, out: TextIO | None = None) -> Migration | None:
    """Show ``views`` on ``out`` (standard error) until they end; give the last one."""
    out = sys.stderr if out is None else out
    show = _Bar(out) if out.isatty() else _Lines(out, time.monotonic)
    last = None
    with show:
        for migration in views:
            show.update(migration)
            last = migration
    return last


def line(migration: Migration) -> str:
    """One look in one line."""
    measured = numbers(migration)
    return f"{phase(migration)}  {measured}" if measured else phase(migration) or "Pending"


def numbers(migration: Migration) -> str:
    """How far it is, in one line; empty when nothing is measured (yet, or any more)."""
    if not _measured(migration):
        return ""
    return f"{_share(migration.progress):3.0f} %  {_numbers(migration.progress)}"


def report_lines(report: MigrationReport) -> list[str]:
    """The report; what was not measured is left out."""
    rows = [("Result", "succeeded" if report.succeeded else f"failed: {report.reason or 'no reason given'}")]
    measured: tuple[tuple[str, str, Callable[[int], str]], ...] = (
        ("Total time", "total_ms", human_ms),
        ("Downtime", "downtime_ms", human_ms),
        ("Predicted", "predicted_downtime_ms", human_ms),
        ("Setup", "setup_ms", human_ms),
        ("Iterations", "iterations", str),
        ("Transferred", "transferred_bytes", human_bytes),
        ("Guest memory", "memory_total_bytes", human_bytes),
        ("Disks copied", "disk_bytes", human_bytes),
        ("Disk copy", "disk_ms", human_ms),
        ("Mean rate", "mean_bytes_per_second", lambda rate: f"{human_bytes(rate)}/s"),
    )
    rows += [
        (label, shown(getattr(report, field)))
        for label, field, shown in measured
        if report.HasField(field)  # type: ignore[arg-type]
    ]
    rows.append(("Measured by", report.source or "nobody"))
    rows += [
        (f"Attempt {number}", f"failed: {earlier.reason}") for number, earlier in enumerate(report.earlier, 1)
    ]
    lines = ["Migration report", *(f"  {label + ':':<14}{value}" for label, value in rows)]
    if report.steps:
        lines.append("  Steps:")
    return lines + [
        f"    {step.elapsed_seconds:7.1f} s  {step.action}" + (f"  ({step.reason})" if step.reason else "")
        for step in report.steps
    ]


def _measured(migration: Migration) -> bool:
    """Whether there are numbers yet."""
    return migration.HasField("progress") and migration.progress.total_bytes > 0


def _share(progress: MigrationProgress) -> float:
    """How much of the memory is over there, in percent."""
    if not progress.total_bytes:
        return 0.0
    done = 100 * (1 - progress.remaining_bytes / progress.total_bytes)
    return min(max(done, 0.0), 100.0)


def _numbers(progress: MigrationProgress) -> str:
    parts = [
        f"iteration {progress.iteration}",
        f"remaining {human_bytes(progress.remaining_bytes)}",
        f"bandwidth {human_bytes(progress.bandwidth_bytes_per_second)}/s",
        f"dirty {human_bytes(progress.dirty_rate_bytes_per_second)}/s",
        f"max downtime {human_ms(progress.max_downtime_ms)}",
    ]
    if progress.HasField("predicted_downtime_ms"):
        parts.append(f"now {human_ms(progress.predicted_downtime_ms)}")
    if progress.disk_total_bytes:
        parts.insert(1, f"disks {human_bytes(progress.disk_remaining_bytes)} left")
    if progress.HasField("eta_seconds"):
        parts.append(f"ETA {human_ms(progress.eta_seconds * 1000)}")
    return "  ".join(parts)


class _Lines:
    """For logs and pipes: a line when the phase changes or the policy acted, else one every few seconds."""

    def __init__(self, out: TextIO, clock: Callable[[], float]) -> None:
        self._out, self._clock = out, clock
        self._phase, self._note, self._next = "", "", 0.0

    def __enter__(self) -> _Lines:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def update(self, migration: Migration) -> None:
        """Print ``migration`` if there is something to say."""
        now, note = self._clock(), migration.progress.note
        if phase(migration) != self._phase or now >= self._next:
            self._phase, self._next = phase(migration), now + LINE_EVERY_S
            print(line(migration), file=self._out, flush=True)
        if note and note != self._note:
            print(f"  {note}", file=self._out, flush=True)
        self._note = note


class _Bar:
    """For terminals: the bar, and below it the numbers, which may take two lines of a narrow one."""

    def __init__(self, out: TextIO) -> None:
        self._progress, self._task = _rich_bar(out)
        self._numbers, self._live = _rich_live(self._progress)
        self._note = ""

    def __enter__(self) -> _Bar:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def update(self, migration: Migration) -> None:
        """Move the bar; what the policy did stays above it."""
        progress = migration.progress
        done = phase(migration) == "Succeeded"
        self._progress.update(
            self._task,
            completed=100.0 if done else _share(progress),
            description=phase(migration) or "Pending",
        )
        self._numbers.plain = f"  {_numbers(progress)}" if _measured(migration) else ""
        if progress.note and progress.note != self._note:
            self._live.console.print(f"  {progress.note}", markup=False, highlight=False)
        self._note = progress.note


def _rich_bar(out: TextIO) -> tuple[Progress, Any]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(bar_width=40), TaskProgressColumn())
    progress = Progress(*columns, console=Console(file=out))
    return progress, progress.add_task("Pending", total=100.0)


def _rich_live(progress: Progress) -> tuple[Text, Live]:
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    numbers = Text()
    return numbers, Live(Group(progress, numbers), console=progress.console, refresh_per_second=5)


def endings(views: Iterable[Migration]) -> Iterator[Migration]:
    """``views`` up to the one that shows the end, report included."""
    for migration in views:
        yield migration
        if phase(migration) in FINISHED and migration.HasField("report"):
            return
