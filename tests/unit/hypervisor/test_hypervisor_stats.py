# SPDX-License-Identifier: Apache-2.0
"""Job statistics out of libvirt's typed parameters."""

from __future__ import annotations

import libvirt

from launcher.hypervisor.port import JobStats
from launcher.hypervisor.stats import completed_job_stats, job_stats

# what a source of libvirt 9.0 reported
COMPLETED = {
    "operation": 5,
    "time_elapsed": 868,
    "time_elapsed_net": 866,
    "downtime": 16,
    "downtime_net": 14,
    "setup_time": 1,
    "data_total": 17309696,
    "data_processed": 566424,
    "data_remaining": 0,
    "memory_total": 17309696,
    "memory_processed": 566424,
    "memory_remaining": 0,
    "memory_bps": 650000,
    "memory_constant": 4101,
    "memory_normal": 129,
    "memory_normal_bytes": 528384,
    "memory_dirty_rate": 7,
    "memory_iteration": 2,
    "memory_postcopy_requests": 0,
    "memory_page_size": 4096,
    "disk_total": 3,
    "disk_processed": 2,
    "disk_remaining": 1,
    "disk_bps": 9,
    "auto_converge_throttle": 20,
}


def test_every_number_finds_its_field() -> None:
    assert completed_job_stats(COMPLETED) == JobStats(
        kind="completed",
        operation="migration-out",
        time_elapsed_ms=868,
        time_elapsed_net_ms=866,
        downtime_ms=16,
        downtime_net_ms=14,
        setup_time_ms=1,
        data_total=17309696,
        data_processed=566424,
        data_remaining=0,
        memory_total=17309696,
        memory_processed=566424,
        memory_remaining=0,
        memory_bps=650000,
        memory_dirty_rate_pages=7,
        memory_page_size=4096,
        memory_iteration=2,
        memory_constant_pages=4101,
        memory_normal_pages=129,
        memory_normal_bytes=528384,
        memory_postcopy_requests=0,
        disk_total=3,
        disk_processed=2,
        disk_remaining=1,
        disk_bps=9,
        auto_converge_throttle=20,
    )


def test_no_job() -> None:
    assert job_stats({"type": libvirt.VIR_DOMAIN_JOB_NONE}) == JobStats(kind="none")
    assert job_stats({}) == JobStats(kind="none")


def test_a_job_that_has_just_begun_knows_little() -> None:
    early = {"type": libvirt.VIR_DOMAIN_JOB_UNBOUNDED, "operation": 5, "time_elapsed": 3}
    assert job_stats(early) == JobStats(kind="unbounded", operation="migration-out", time_elapsed_ms=3)


def test_a_failed_job_says_why() -> None:
    failed = completed_job_stats({"operation": 9, "success": False, "errmsg": "no space"})
    assert failed == JobStats(kind="failed", operation="backup", error="no space")
    assert completed_job_stats({"operation": 9, "success": True}).kind == "completed"


def test_what_a_newer_libvirt_adds_is_no_error() -> None:
    assert job_stats({"type": 77, "operation": 99, "vfio_transferred": 1}) == JobStats(
        kind="unknown-77", operation="unknown-99"
    )
