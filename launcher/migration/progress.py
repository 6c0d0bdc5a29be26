# SPDX-License-Identifier: Apache-2.0
"""What a migration tells people: one look at a running one, and the report at its end. Records only.

``agent.port`` shows them under the same names.
"""

from __future__ import annotations

import msgspec


class MigrationProgress(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One look at a running migration, for people and progress bars. Sizes in bytes, rates per second.

    ``total``, ``processed`` and ``remaining`` count memory and copied disks; the ``disk`` numbers the latter
    alone, 0 when none are copied. ``predicted_downtime_ms`` is how long the guest would stand still were it
    handed over after the newest pass, None before the second. ``note`` is set when the policy acted: what it
    did and why.
    """

    phase: str
    elapsed_s: float
    iteration: int = 0
    total: int = 0
    processed: int = 0
    remaining: int = 0
    bandwidth_bps: int = 0
    dirty_rate_bps: int = 0
    max_downtime_ms: int = 0
    eta_s: float | None = None
    disk_total: int = 0
    disk_processed: int = 0
    disk_remaining: int = 0
    predicted_downtime_ms: int | None = None
    note: str = ""


class MigrationReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The end of a migration; numbers come from libvirt's completed-job statistics where it has them.

    ``predicted_downtime_ms`` is what the last pass promised. ``disk_bytes`` were copied of disks, for
    ``disk_ms`` before memory began to flow. ``steps`` are the actions of the policy: (elapsed seconds,
    action, reason). ``earlier`` are the reports of attempts of the same migration that failed before this.
    """

    succeeded: bool
    reason: str = ""
    total_ms: int | None = None
    downtime_ms: int | None = None
    predicted_downtime_ms: int | None = None
    setup_ms: int | None = None
    iterations: int | None = None
    transferred: int | None = None
    memory_total: int | None = None
    mean_bps: int | None = None
    disk_bytes: int | None = None
    disk_ms: int | None = None
    post_copy: bool = False
    steps: tuple[tuple[float, str, str], ...] = ()
    earlier: tuple[MigrationReport, ...] = ()
    source: str = "libvirt"
    """Where the numbers come from: ``libvirt`` (completed-job statistics) or ``samples`` (our last poll)."""
