# SPDX-License-Identifier: Apache-2.0
"""One absolute observation of a running migration: what every policy decides from. Pure.

A sample says what is, never what changed: a policy that misses some samples still decides right.
"""

from __future__ import annotations

import msgspec

from launcher.hypervisor.port import JobStats


class Sample(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was seen at ``t`` (seconds since the job began, by a clock that never steps).

    Sizes are bytes, rates bytes per second. None: libvirt did not say (no job yet, or it leaves out a
    zero). ``remaining``, ``processed`` and ``total`` count memory and disks; ``job_ms`` is the time that
    libvirt's own clock gives the job. ``domain`` and ``reason`` are the guest's state and its reason by
    libvirt's names; ``job`` is the kind of the running job. ``boundary``: taken because a pass began.
    The ``disk`` numbers are those of copied disks alone, ``throttle`` the percent by which auto-converge
    slows the guest down. ``max_downtime_ms`` is the limit that was last set with success, None before
    the first.
    """

    t: float
    iteration: int | None = None
    remaining: int | None = None
    processed: int | None = None
    total: int | None = None
    bandwidth: int | None = None
    dirty_rate: int | None = None
    job_ms: int | None = None
    max_downtime_ms: int | None = None
    domain: str = "running"
    reason: str = ""
    job: str = "unbounded"
    boundary: bool = False
    disk_total: int | None = None
    disk_processed: int | None = None
    disk_remaining: int | None = None
    throttle: int | None = None

    @property
    def post_copy(self) -> bool:
        """The target runs the guest and memory follows (libvirt: paused, post-copy, on the source)."""
        return self.reason.startswith("post-copy")

    @property
    def stopped_for_switchover(self) -> bool:
        """The hypervisor itself stopped the guest to end the migration."""
        return self.domain == "paused" and self.reason == "migration"


def sample_from_stats(
    stats: JobStats,
    *,
    t: float,
    boundary: bool,
    max_downtime_ms: int | None,
    domain: str = "running",
    reason: str = "",
) -> Sample:
    """Turn libvirt's job statistics into a sample."""
    pages, size = stats.memory_dirty_rate_pages, stats.memory_page_size
    return Sample(
        t=t,
        iteration=stats.memory_iteration,
        remaining=_either(stats.data_remaining, stats.memory_remaining),
        processed=_either(stats.data_processed, stats.memory_processed),
        total=_either(stats.data_total, stats.memory_total),
        bandwidth=stats.memory_bps,
        dirty_rate=pages * size if pages is not None and size is not None else None,
        job_ms=stats.time_elapsed_ms,
        max_downtime_ms=max_downtime_ms,
        domain=domain,
        reason=reason,
        job=stats.kind,
        boundary=boundary,
        disk_total=stats.disk_total,
        disk_processed=stats.disk_processed,
        disk_remaining=stats.disk_remaining,
        throttle=stats.auto_converge_throttle,
    )


def _either(first: int | None, second: int | None) -> int | None:
    return second if first is None else first
