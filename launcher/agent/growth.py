# SPDX-License-Identifier: Apache-2.0
"""Claims that have become larger than the disk that a running guest has of them. Pure; none shrinks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from launcher.agent.records import InstanceRecord
from launcher.plan.devices.model import DiskPlan
from launcher.plan.steps import CreateImage
from launcher.units import MIB

CLAIMS = frozenset({"persistentVolumeClaim", "dataVolume"})
_NOTICEABLE = 100
"""A file system with too little room for the whole capacity breathes: less than a hundredth is left alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskSize:
    """Bytes of a volume: what the guest sees, and what it may have by now. ``short``: that is less than the
    claim's capacity, for want of room."""

    name: str
    guest: int
    possible: int
    short: bool = False


@dataclass(frozen=True, slots=True)
class GrowDisk:
    """Let the guest see ``size`` bytes; ``preallocate``: they are to be taken at once."""

    disk: DiskPlan
    size: int
    preallocate: bool = False


def growing(record: InstanceRecord) -> tuple[tuple[DiskPlan, CreateImage | None], ...]:
    """Disks that follow their claims, each with the step that says how large it is to be."""
    images = {step.path: step for step in record.plan.steps if isinstance(step, CreateImage) and step.grow}
    return tuple(
        (disk, images.get(disk.source.path))
        for disk in record.plan.devices.disks
        if disk.source is not None
        and disk.kind in CLAIMS
        and disk.device == "disk"
        and disk.format == "raw"
        and not disk.readonly
        and disk.tracking is None  # what tracks it is made for its size: it grows at the next start
    )


def growth_steps(record: InstanceRecord, sizes: tuple[DiskSize, ...]) -> Iterator[GrowDisk]:
    """What brings disks to the size of their claims."""
    follow = {disk.name: (disk, image) for disk, image in growing(record)}
    for size in sizes:
        disk, image = follow.get(size.name, (None, None))
        least = max(MIB, size.guest // _NOTICEABLE) if size.short else 1
        if disk is not None and size.possible - size.guest >= least:
            yield GrowDisk(disk, size.possible, image is not None and image.preallocate)
