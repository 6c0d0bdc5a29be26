# SPDX-License-Identifier: Apache-2.0
"""The report at the end of a migration, from libvirt's final statistics and our own samples. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from launcher.hypervisor.port import JobStats
from launcher.migration.attempt import StepTaken
from launcher.migration.progress import MigrationReport
from launcher.migration.sample import Sample


def make_report(
    *,
    succeeded: bool,
    reason: str,
    final: JobStats | None,
    samples: Sequence[Sample],
    steps: Sequence[StepTaken],
    elapsed_s: float,
    post_copy: bool = False,
) -> MigrationReport:
    """Put it together; numbers libvirt did not give come from the last sample and say so (``source``)."""
    taken = tuple((step.t, step.action, step.reason) for step in steps)
    counted = next((s for s in reversed(samples) if s.processed is not None), None)
    disk_bytes, disk_ms = _disks(final, samples)
    iterations = max((s.iteration for s in samples if s.iteration is not None), default=None)
    if final is None or final.kind == "none":
        total_ms = round(elapsed_s * 1000)
        transferred = counted.processed if counted else None
        return MigrationReport(
            succeeded=succeeded,
            reason=reason,
            total_ms=total_ms,
            iterations=iterations,
            transferred=transferred,
            memory_total=counted.total if counted else None,
            mean_bps=_rate(transferred, total_ms),
            disk_bytes=disk_bytes,
            disk_ms=disk_ms,
            post_copy=post_copy,
            steps=taken,
            source="samples",
        )
    total_ms_ = final.time_elapsed_ms
    transferred = _first(final.data_processed, final.memory_processed)
    return MigrationReport(
        succeeded=succeeded,
        reason=reason,
        total_ms=total_ms_,
        # Of a job that did not complete, libvirt's downtime is only what it expected. The net figure leaves
        # out the hand-over between the hosts, which the guest feels too.
        downtime_ms=_first(final.downtime_ms, final.downtime_net_ms) if final.kind == "completed" else None,
        setup_ms=final.setup_time_ms,
        iterations=_first(final.memory_iteration, iterations),
        transferred=transferred,
        memory_total=final.memory_total,
        mean_bps=_rate(transferred, total_ms_),
        disk_bytes=disk_bytes,
        disk_ms=disk_ms,
        post_copy=post_copy,
        steps=taken,
    )


def _disks(final: JobStats | None, samples: Sequence[Sample]) -> tuple[int | None, int | None]:
    """Bytes of copied disks, and how long that took before memory began to flow; None when none were."""
    seen = [s for s in samples if s.disk_total]
    copied = final.disk_processed if final is not None and final.disk_total else None
    if copied is None:
        copied = max((s.disk_processed or 0 for s in seen), default=None)
    if copied is None:
        return None, None
    ended = next((s.t for s in samples if s.iteration), samples[-1].t if samples else 0.0)
    return copied, round(ended * 1000)


def _first(first: int | None, second: int | None) -> int | None:
    return second if first is None else first


def _rate(size: int | None, milliseconds: int | None) -> int | None:
    return size * 1000 // milliseconds if size is not None and milliseconds else None
