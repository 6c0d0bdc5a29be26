# SPDX-License-Identifier: Apache-2.0
"""How many I/O threads an instance has and which disk uses which. Pure; pinning is in ``pinning``."""

from __future__ import annotations

from math import ceil

import msgspec

from launcher.spec.model import Disk, VirtualMachineInstance


class IOThreadLayout(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """I/O threads of one domain, numbered from 1.

    ``disks`` gives the thread of each disk on the virtio bus. With a supplemental pool ``disks`` is empty
    and every virtio disk uses all threads of ``pool``. ``scsi`` is the thread of the SCSI controller and
    ``scsi_queues`` its number of queues; None: the controller gets no driver settings.
    """

    count: int = 0
    disks: dict[str, int] = {}
    pool: tuple[int, ...] = ()
    scsi: int | None = None
    scsi_queues: int | None = None


def iothread_layout(vmi: VirtualMachineInstance, current_vcpus: int) -> IOThreadLayout:
    """Lay out the I/O threads of a defaulted ``vmi`` that starts with ``current_vcpus``.

    Two dedicated and five plain virtio disks under ``shared``: 3 threads, the plain ones on 1, the
    dedicated ones on 2 and 3.
    """
    policy = vmi.spec.domain.io_threads_policy
    disks = vmi.spec.domain.devices.disks
    dedicated = sum(1 for disk in disks if disk.dedicated_io_thread)
    if policy == "supplementalPool":
        count = supplemental_threads(vmi)
        return IOThreadLayout(count=count, pool=tuple(range(1, count + 1)))
    if policy is None and dedicated == 0:
        return IOThreadLayout()
    automatic = len(disks) - dedicated
    limit = _automatic_limit(vmi) if policy == "auto" else 1
    if automatic + dedicated > limit:
        automatic = max(1, limit - dedicated)
    assigned, following = _assign(disks, automatic)
    scsi = automatic > 0 and any(disk.dedicated_io_thread and disk_bus(disk) == "scsi" for disk in disks)
    return IOThreadLayout(
        count=automatic + dedicated,
        disks=assigned,
        scsi=following if scsi else None,
        scsi_queues=current_vcpus if scsi else None,
    )


def supplemental_threads(vmi: VirtualMachineInstance) -> int:
    """Size of the supplemental pool; 0 unless the policy asks for it (the count alone means nothing)."""
    pool = vmi.spec.domain.io_threads
    if vmi.spec.domain.io_threads_policy != "supplementalPool" or pool is None:
        return 0
    return pool.supplemental_pool_thread_count or 0


def disk_bus(disk: Disk) -> str:
    """The bus of a defaulted disk, whichever device it is; empty when none was set."""
    target = disk.disk or disk.cdrom or disk.lun
    return (target.bus if target is not None else None) or ""


def _assign(disks: tuple[Disk, ...], automatic: int) -> tuple[dict[str, int], int]:
    """Threads by disk name, and the thread that the next plain virtio disk would get."""
    assigned: dict[str, int] = {}
    plain, own = 1, automatic + 1
    for disk in disks:
        if disk_bus(disk) != "virtio":
            continue
        if disk.dedicated_io_thread:
            assigned[disk.name] = own
            own += 1
        else:
            assigned[disk.name] = plain
            plain = plain % automatic + 1
    return assigned, plain


def _automatic_limit(vmi: VirtualMachineInstance) -> int:
    """Threads that ``auto`` may make: two for each requested CPU, or the one that the emulator shares."""
    domain = vmi.spec.domain
    if domain.cpu is not None and domain.cpu.dedicated_cpu_placement and domain.cpu.isolate_emulator_thread:
        return 1
    resources = domain.resources
    if resources is None:
        return 2
    cpus = resources.requests.get("cpu") or resources.limits.get("cpu")
    return 2 * (ceil(cpus.value) if cpus is not None else 1)
