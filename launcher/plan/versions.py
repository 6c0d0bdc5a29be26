# SPDX-License-Identifier: Apache-2.0
"""Since which release libvirt can express what the plans use. Numbers only; sources: libvirt's NEWS."""

from __future__ import annotations

from launcher.plan.facts import version

# REQUIRED_FOR: libvirt < 9.5 wants memory slots even for virtio-mem, which takes none.
MAX_MEMORY_WITHOUT_SLOTS = version(9, 5)
# REQUIRED_FOR: libvirt < 9.6 wants a guest NUMA cell with maxMemory.
MAX_MEMORY_WITHOUT_CELL = version(9, 6)
# <driver><iothreads> of a disk.
DISK_IOTHREAD_MAPPING = version(10, 0)
# REQUIRED_FOR: libvirt < 10.10 adds no IOMMU with EIM, so that 255 vCPUs are the most on x86.
AUTOMATIC_IOMMU = version(10, 10)
# Children of <tlbflush>.
TLBFLUSH_CHILDREN = version(11, 0)
# An msdm table, or more than one table.
ACPI_TABLES = version(11, 2)
SEV_SNP = version(10, 5)
TDX = version(11, 6)


def release(number: int) -> str:
    """A version of libvirt or QEMU for people: 7002000 is ``7.2.0``."""
    return f"{number // 1_000_000}.{number // 1_000 % 1_000}.{number % 1_000}"
