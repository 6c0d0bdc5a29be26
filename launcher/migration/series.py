# SPDX-License-Identifier: Apache-2.0
"""The samples of a migration and what follows from them: bandwidth, time to go, progress. Pure.

Bandwidth comes from counted bytes, not from the rate QEMU reports: that one keeps its last value when
the link is dead. The list is bounded: past the bound every second older sample is dropped.
"""

from __future__ import annotations

import math

from launcher.migration.progress import MigrationProgress
from launcher.migration.sample import Sample

BANDWIDTH_WINDOW_S = 3.0
MAX_SAMPLES = 4000
"""About 25 minutes of polls in full; longer migrations keep a thinned past."""


class Series:
    """Samples in the order they were taken."""

    def __init__(self, switchover_bps: int = 0) -> None:
        self._switchover_bps = switchover_bps
        self._samples: list[Sample] = []
        self.predicted_ms: int | None = None
        """How long the guest would stand still if it were handed over with what the last pass left."""

    @property
    def samples(self) -> tuple[Sample, ...]:
        """All that is kept."""
        return tuple(self._samples)

    @property
    def last(self) -> Sample | None:
        """The newest sample."""
        return self._samples[-1] if self._samples else None

    def add(self, sample: Sample) -> None:
        """Take a sample; one older than the newest is ignored."""
        if self._samples and sample.t < self._samples[-1].t:
            return
        self._samples.append(sample)
        self._predict(sample)
        if len(self._samples) > MAX_SAMPLES:
            half = len(self._samples) // 2
            self._samples = self._samples[:half:2] + self._samples[half:]

    def _predict(self, sample: Sample) -> None:
        # The first pass has the whole memory to send; what it finds written is known when the second begins.
        # A last one is counted when the guest stands still already: what it left may have been sent by then.
        rate = max(self.bandwidth() or 0.0, float(self._switchover_bps))
        later = sample.boundary and (sample.iteration or 0) > 1 and sample.domain == "running"
        if later and sample.remaining is not None and rate:
            self.predicted_ms = math.ceil(sample.remaining * 1000 / rate)

    def bandwidth(self) -> float | None:
        """Bytes per second over the last three seconds; None while there are not two samples with counts."""
        counted = [s for s in self._samples[-_lookback() :] if s.processed is not None]
        if len(counted) < 2:
            return None
        last = counted[-1]
        first = next(s for s in counted if last.t - s.t <= BANDWIDTH_WINDOW_S)
        if first is last:
            first = counted[-2]
        if last.t <= first.t:
            return None
        # A counter that fell belongs to another phase (disks ended, memory began).
        return max((last.processed or 0) - (first.processed or 0), 0) / (last.t - first.t)

    def still_s(self) -> float:
        """For how long nothing was sent up to the newest sample."""
        counted = [s for s in self._samples if s.processed is not None]
        if not counted:
            return 0.0
        same = next((s for s in reversed(counted) if s.processed != counted[-1].processed), None)
        first = counted[0] if same is None else counted[counted.index(same) + 1]
        return counted[-1].t - first.t

    def eta_s(self) -> float | None:
        """Seconds until all that is known to be left is sent: the earliest end, None when nothing moves.

        The guest's dirty rate is left out on purpose: QEMU counts each page once for a pass, so what it
        reports nears the bandwidth whatever the guest does.
        """
        sample, bandwidth = self.last, self.bandwidth()
        if sample is None or sample.remaining is None or not bandwidth:
            return None
        return sample.remaining / bandwidth

    def progress(self, sample: Sample, *, phase: str, note: str = "") -> MigrationProgress:
        """What to tell about ``sample``, the newest one."""
        bandwidth, eta = self.bandwidth(), self.eta_s()
        return MigrationProgress(
            phase=phase,
            elapsed_s=round(sample.t, 3),
            iteration=sample.iteration or 0,
            total=sample.total or 0,
            processed=sample.processed or 0,
            remaining=sample.remaining or 0,
            bandwidth_bps=int(bandwidth or 0),
            dirty_rate_bps=sample.dirty_rate or 0,
            max_downtime_ms=sample.max_downtime_ms or 0,
            eta_s=None if eta is None else round(eta, 1),
            disk_total=sample.disk_total or 0,
            disk_processed=sample.disk_processed or 0,
            disk_remaining=sample.disk_remaining or 0,
            predicted_downtime_ms=self.predicted_ms,
            note=note,
        )


def _lookback() -> int:
    # Polls every 0.4 s plus passes at most every 0.1 s.
    return int(BANDWIDTH_WINDOW_S * 12)
