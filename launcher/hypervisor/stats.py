# SPDX-License-Identifier: Apache-2.0
"""libvirt's typed parameters of a domain job -> JobStats. Pure: values in, values out.

Units are libvirt's: times in milliseconds, sizes in bytes, ``memory_bps`` and ``disk_bps`` in bytes per
second, ``memory_dirty_rate`` in pages per second, constant and normal memory in pages
(virDomainGetJobStats, VIR_DOMAIN_JOB_* in libvirt-domain.h).
"""

from __future__ import annotations

from collections.abc import Mapping

import libvirt

from launcher.hypervisor import translate
from launcher.hypervisor.port import JobStats

Params = Mapping[str, object]


def job_stats(params: Params) -> JobStats:
    """Statistics as virDomainGetJobStats returns them."""
    kind = _number(params, "type")
    return _job_stats(params, kind=translate.named(translate.JOB_KINDS, kind or 0))


def completed_job_stats(params: Params) -> JobStats:
    """Statistics as the job-completed event carries them: without a type, perhaps with a success."""
    success = params.get(libvirt.VIR_DOMAIN_JOB_SUCCESS, True)
    return _job_stats(params, kind="completed" if success else "failed")


def _number(params: Params, name: str) -> int | None:
    value = params.get(name)
    return int(value) if isinstance(value, int) else None


def _job_stats(params: Params, *, kind: str) -> JobStats:
    operation = _number(params, libvirt.VIR_DOMAIN_JOB_OPERATION)
    return JobStats(
        kind=kind,
        operation="" if operation is None else translate.named(translate.JOB_OPERATIONS, operation),
        time_elapsed_ms=_number(params, libvirt.VIR_DOMAIN_JOB_TIME_ELAPSED),
        time_elapsed_net_ms=_number(params, libvirt.VIR_DOMAIN_JOB_TIME_ELAPSED_NET),
        downtime_ms=_number(params, libvirt.VIR_DOMAIN_JOB_DOWNTIME),
        downtime_net_ms=_number(params, libvirt.VIR_DOMAIN_JOB_DOWNTIME_NET),
        setup_time_ms=_number(params, libvirt.VIR_DOMAIN_JOB_SETUP_TIME),
        data_total=_number(params, libvirt.VIR_DOMAIN_JOB_DATA_TOTAL),
        data_processed=_number(params, libvirt.VIR_DOMAIN_JOB_DATA_PROCESSED),
        data_remaining=_number(params, libvirt.VIR_DOMAIN_JOB_DATA_REMAINING),
        memory_total=_number(params, libvirt.VIR_DOMAIN_JOB_MEMORY_TOTAL),
        memory_processed=_number(params, libvirt.VIR_DOMAIN_JOB_MEMORY_PROCESSED),
        memory_remaining=_number(params, libvirt.VIR_DOMAIN_JOB_MEMORY_REMAINING),
        memory_bps=_number(params, libvirt.VIR_DOMAIN_JOB_MEMORY_BPS),
        memory_dirty_rate_pages=_number(params, libvirt.VIR_DOMAIN_JOB_MEMORY_DIRTY_RATE),
        memory_page_size=_number(params, libvirt.VIR_DOMAIN_JOB_MEMORY_PAGE_SIZE),
        memory_iteration=_number(params, libvirt.VIR_DOMAIN_JOB_MEMORY_ITERATION),
        memory_constant_pages=_number(params, libvirt.VIR_DOMAIN_JOB_MEMORY_CONSTANT),
        memory_normal_pages=_number(params, libvirt.VIR_DOMAIN_JOB_MEMORY_NORMAL),
        memory_normal_bytes=_number(params, libvirt.VIR_DOMAIN_JOB_MEMORY_NORMAL_BYTES),
        memory_postcopy_requests=_number(params, libvirt.VIR_DOMAIN_JOB_MEMORY_POSTCOPY_REQS),
        disk_total=_number(params, libvirt.VIR_DOMAIN_JOB_DISK_TOTAL),
        disk_processed=_number(params, libvirt.VIR_DOMAIN_JOB_DISK_PROCESSED),
        disk_remaining=_number(params, libvirt.VIR_DOMAIN_JOB_DISK_REMAINING),
        disk_bps=_number(params, libvirt.VIR_DOMAIN_JOB_DISK_BPS),
        auto_converge_throttle=_number(params, libvirt.VIR_DOMAIN_JOB_AUTO_CONVERGE_THROTTLE),
        error=str(params.get(libvirt.VIR_DOMAIN_JOB_ERRMSG, "")),
    )
