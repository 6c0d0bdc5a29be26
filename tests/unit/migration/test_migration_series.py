# SPDX-License-Identifier: Apache-2.0
"""What follows from samples: bandwidth, time to go, progress, and the report at the end."""

from __future__ import annotations

import pytest

from launcher.hypervisor.port import JobStats
from launcher.migration.attempt import (
    AttemptRecord,
    Cause,
    Outgoing,
    Phase,
    StepTaken,
    Transition,
    decode,
    encode,
)
from launcher.migration.options import Options, Workload
from launcher.migration.report import make_report
from launcher.migration.sample import Sample, sample_from_stats
from launcher.migration.series import MAX_SAMPLES, Series

MB = 10**6


def sent(t: float, processed: int, remaining: int = 100 * MB, **fields: int) -> Sample:
    return Sample(t=t, processed=processed, remaining=remaining, **fields)  # type: ignore[arg-type]


def filled(*samples: Sample) -> Series:
    series = Series()
    for sample in samples:
        series.add(sample)
    return series


def test_bandwidth_is_bytes_over_the_last_three_seconds() -> None:
    series = filled(
        *(sent(0.4 * n, 0) for n in range(20)), *(sent(8 + 0.4 * n, 4 * MB * n) for n in range(20))
    )
    assert series.bandwidth() == pytest.approx(10 * MB, rel=0.01)


def test_a_dead_link_has_no_bandwidth_whatever_is_reported() -> None:
    series = filled(*(sent(0.4 * n, 5 * MB, bandwidth=40 * MB) for n in range(20)))
    assert series.bandwidth() == 0
    assert series.eta_s() is None


def test_time_to_go_is_what_is_left_at_the_present_pace() -> None:
    assert filled(*(sent(0.4 * n, 4 * MB * n) for n in range(10))).eta_s() == pytest.approx(10, rel=0.01)


@pytest.mark.parametrize(("link_bps", "predicted_ms"), [(0, 500), (20 * MB, 250), (1 * MB, 500)])
def test_the_downtime_is_predicted_from_what_a_pass_found_written(link_bps: int, predicted_ms: int) -> None:
    series = Series(link_bps)
    for n in range(10):
        first = n == 0
        series.add(sent(0.4 * n, 4 * MB * n, iteration=1, boundary=first))
        assert series.predicted_ms is None, "the first pass has all of the memory to send"
    series.add(sent(4.0, 40 * MB, 5 * MB, iteration=2, boundary=True))
    series.add(sent(4.4, 44 * MB, 1 * MB, iteration=2))
    series.add(
        Sample(t=4.8, processed=45 * MB, remaining=0, iteration=3, boundary=True, domain="paused", job="x")
    )
    assert series.predicted_ms == pytest.approx(predicted_ms, rel=0.01)
    assert series.progress(sent(4.4, 44 * MB), phase="Running").predicted_downtime_ms == series.predicted_ms


def test_how_long_nothing_was_sent_is_known() -> None:
    moving = [sent(0.4 * n, MB * n) for n in range(5)]
    still = [sent(2 + 0.4 * n, 4 * MB) for n in range(6)]
    assert filled().still_s() == 0
    assert filled(*moving).still_s() == 0
    assert filled(*moving, *still).still_s() == pytest.approx(2.4)
    assert filled(*still).still_s() == pytest.approx(2.0)


def test_with_one_sample_nothing_is_claimed() -> None:
    series = filled(sent(1, 1))
    assert (series.bandwidth(), series.eta_s()) == (None, None)
    progress = series.progress(sent(1, 1), phase="Running", note="why")
    assert (progress.bandwidth_bps, progress.eta_s, progress.note) == (0, None, "why")


def test_a_long_migration_is_thinned_and_keeps_its_ends() -> None:
    series = filled(*(sent(float(n), n) for n in range(3 * MAX_SAMPLES)))
    assert len(series.samples) <= MAX_SAMPLES
    assert (series.samples[0].t, series.samples[-1].t) == (0.0, 3 * MAX_SAMPLES - 1)
    times = [s.t for s in series.samples]
    assert times == sorted(times)


def test_samples_out_of_order_are_ignored() -> None:
    assert len(filled(sent(2, 1), sent(1, 1)).samples) == 1


def test_a_sample_takes_libvirts_numbers_as_they_are() -> None:
    stats = JobStats(
        kind="unbounded",
        operation="migration-out",
        time_elapsed_ms=1500,
        memory_total=10,
        memory_remaining=3,
        memory_dirty_rate_pages=7,
        memory_page_size=4096,
        memory_iteration=2,
    )
    sample = sample_from_stats(
        stats, t=1.6, boundary=True, max_downtime_ms=150, domain="paused", reason="migration"
    )
    assert (sample.remaining, sample.total, sample.processed) == (3, 10, None)
    assert (sample.dirty_rate, sample.job_ms, sample.iteration, sample.boundary) == (28672, 1500, 2, True)
    assert sample.stopped_for_switchover
    assert not sample.post_copy


STEPS = (StepTaken(t=0.0, action="max_downtime 150 ms", reason="ramp"),)


def test_a_report_from_libvirts_final_statistics() -> None:
    final = JobStats(
        kind="completed",
        time_elapsed_ms=4000,
        downtime_ms=80,
        downtime_net_ms=60,
        setup_time_ms=5,
        data_processed=200 * MB,
        memory_total=512 * MB,
        memory_iteration=4,
    )
    report = make_report(succeeded=True, reason="", final=final, samples=(), steps=STEPS, elapsed_s=5)
    assert (report.total_ms, report.downtime_ms, report.iterations) == (4000, 80, 4)
    assert (report.mean_bps, report.source) == (50 * MB, "libvirt")
    assert report.steps == ((0.0, "max_downtime 150 ms", "ramp"),)


def test_a_job_that_did_not_complete_has_no_downtime() -> None:
    final = JobStats(kind="cancelled", time_elapsed_ms=4000, downtime_ms=80)
    report = make_report(succeeded=False, reason="x", final=final, samples=(), steps=(), elapsed_s=5)
    assert report.downtime_ms is None


def test_a_report_from_samples_says_so() -> None:
    samples = (sent(1, 10 * MB, iteration=1), sent(2, 20 * MB, iteration=3))
    report = make_report(succeeded=True, reason="", final=None, samples=samples, steps=(), elapsed_s=2.5)
    assert (report.total_ms, report.iterations, report.transferred) == (2500, 3, 20 * MB)
    assert (report.downtime_ms, report.source) == (None, "samples")


def test_a_record_survives_the_journal() -> None:
    record = AttemptRecord(
        outgoing=Outgoing(
            attempt="x",
            namespace="n",
            name="vm",
            uuid="u",
            source_node="a",
            target_node="b",
            options=Options(allow_post_copy=True),
            workload=Workload(memory_bytes=1),
        ),
        phase=Phase.FAILED,
        transitions=(Transition(phase=Phase.FAILED, at="2026-01-01T00:00:00Z"),),
        steps=STEPS,
        cause=Cause.CANCELLED,
        job_began=12.5,
    )
    assert decode(encode(record)) == record
