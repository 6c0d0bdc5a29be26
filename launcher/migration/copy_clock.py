# SPDX-License-Identifier: Apache-2.0
"""The clock of disks that are copied on their own node: how far they are, and whether that takes too long.

Pure: times are handed in, monotonic. The limits are the options of migrations, with the disks alone counted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from launcher.migration.cause import Cause
from launcher.migration.options import Options
from launcher.migration.progress import MigrationProgress
from launcher.migration.sample import Sample
from launcher.units import GIB, ceil_div, human_bytes

_SMOOTH = 0.3  # weight of the newest rate


@dataclass(frozen=True, slots=True)
class CopyClock:
    """``total`` bytes of disks, ``done`` of what there was to do, ``rest`` of it left; ``moved_at`` is when
    the last byte came, ``at`` the last look, ``rate`` in bytes per second."""

    total: int
    done: int = 0
    rest: int | None = None
    moved_at: float | None = None
    at: float | None = None
    rate: float = 0.0

    def looked(self, *, done: int, rest: int, now: float) -> CopyClock:
        """The clock after a look."""
        rate = self.rate
        if self.at is not None and now > self.at:
            newest = max(0.0, (done - self.done) / (now - self.at))
            rate = newest if not rate else _SMOOTH * newest + (1 - _SMOOTH) * rate
        came = self.moved_at is None or done != self.done or rest == 0
        moved_at = now if came else self.moved_at
        return replace(self, done=done, rest=rest, moved_at=moved_at, at=now, rate=rate)

    def progress(self, phase: str, elapsed_s: float) -> MigrationProgress:
        """What people are shown."""
        rest = min(self.total, self.total if self.rest is None else self.rest)
        return MigrationProgress(
            phase=phase,
            elapsed_s=elapsed_s,
            total=self.total,
            processed=self.total - rest,
            remaining=rest,
            bandwidth_bps=int(self.rate),
            eta_s=rest / self.rate if self.rate else None,
            disk_total=self.total,
            disk_processed=self.total - rest,
            disk_remaining=rest,
        )

    def sample(self, t: float) -> Sample:
        """What is recorded, ``t`` seconds after the copy began."""
        rest = min(self.total, self.total if self.rest is None else self.rest)
        return Sample(
            t=t,
            remaining=rest,
            processed=self.done,
            total=self.total,
            bandwidth=int(self.rate),
            disk_total=self.total,
            disk_processed=self.done,
            disk_remaining=rest,
        )


def overdue(clock: CopyClock, options: Options, *, began: float, now: float) -> tuple[Cause, str]:
    """Why the copy is to be given up, if it is: ``(NONE, "")`` otherwise."""
    gib = max(ceil_div(clock.total, GIB), 1)
    limit_s = options.completion_timeout_per_gib_s * gib
    if limit_s and now - began > limit_s:
        left = human_bytes(clock.rest or 0)
        return Cause.COMPLETION_TIMEOUT, f"it was not done within {limit_s} s; {left} are left"
    idle_s = now - clock.moved_at if clock.moved_at is not None else 0.0
    if options.progress_timeout_s and idle_s > options.progress_timeout_s:
        return Cause.PROGRESS_TIMEOUT, f"nothing was copied for {options.progress_timeout_s} s"
    return Cause.NONE, ""
