# SPDX-License-Identifier: Apache-2.0
"""What a migration looks like while it runs and afterwards."""

from __future__ import annotations

import io

from launcher.cli import progress
from launcher.rpc.struct import from_plain
from launcher.v1.migrations_pb2 import Migration, MigrationProgress, MigrationReport, MigrationStep

MIB = 2**20


def migration(phase: str, **numbers: object) -> Migration:
    made = Migration(object=from_plain({"status": {"phase": phase}}))
    if numbers:
        made.progress.CopyFrom(MigrationProgress(**numbers))  # type: ignore[arg-type]
    return made


def test_line() -> None:
    shown = progress.line(
        migration(
            "Running",
            iteration=3,
            total_bytes=256 * MIB,
            remaining_bytes=64 * MIB,
            bandwidth_bytes_per_second=100 * MIB,
            dirty_rate_bytes_per_second=20 * MIB,
            max_downtime_ms=279,
            eta_seconds=1.5,
        )
    )
    assert shown == (
        "Running   75 %  iteration 3  remaining 64.0 MiB  bandwidth 100.0 MiB/s  dirty 20.0 MiB/s  "
        "max downtime 279 ms  ETA 1.50 s"
    )
    assert progress.line(migration("Pending")) == "Pending"
    assert "ETA" not in progress.line(migration("Running", iteration=1))


def test_lines_without_a_terminal_are_few() -> None:
    out = io.StringIO()
    views = [migration("Pending"), *[migration("Running", iteration=n) for n in range(50)]]
    views[20].progress.note = "max_downtime 279 ms: iteration 3 began"
    views[21].progress.note = views[20].progress.note
    last = progress.follow(views, out=out)
    lines = out.getvalue().splitlines()
    assert len(lines) == 3  # one a phase, and what the policy did, once
    assert lines[2].strip() == views[20].progress.note
    assert last is views[-1]


def test_a_terminal_gets_a_bar() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    out = Terminal()
    progress.follow([migration("Running", total_bytes=4, remaining_bytes=1), migration("Succeeded")], out=out)
    assert "Succeeded" in out.getvalue()
    assert "100%" in out.getvalue()


def test_report_has_every_step_and_only_what_was_measured() -> None:
    report = MigrationReport(
        succeeded=True,
        total_ms=2345,
        downtime_ms=87,
        iterations=4,
        transferred_bytes=300 * MIB,
        steps=[
            MigrationStep(elapsed_seconds=10, action="max_downtime 279 ms", reason="iteration 3 began"),
            MigrationStep(elapsed_seconds=20.4, action="max_downtime 407 ms"),
        ],
        source="libvirt",
    )
    assert progress.report_lines(report) == [
        "Migration report",
        "  Result:       succeeded",
        "  Total time:   2.35 s",
        "  Downtime:     87 ms",
        "  Iterations:   4",
        "  Transferred:  300.0 MiB",
        "  Measured by:  libvirt",
        "  Steps:",
        "       10.0 s  max_downtime 279 ms  (iteration 3 began)",
        "       20.4 s  max_downtime 407 ms",
    ]
    failed = progress.report_lines(MigrationReport(reason="completion timeout"))
    assert failed[1] == "  Result:       failed: completion timeout"


def test_endings_stops_at_the_report() -> None:
    done = migration("Succeeded")
    done.report.succeeded = True
    views = [migration("Running"), migration("Succeeded"), done, migration("Running")]
    assert list(progress.endings(views)) == views[:3]
