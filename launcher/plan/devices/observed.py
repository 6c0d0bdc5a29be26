# SPDX-License-Identifier: Apache-2.0
"""What only the finished files tell (O_DIRECT, allocation, formats) -> the rest of a DiskPlan. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from launcher.errors import HostUnsupported
from launcher.plan.devices.model import BlockSizes, DevicesPlan, DiskPlan, ImageFormat, Plan


class Observed(Plan, frozen=True, kw_only=True):
    """What storage saw of a volume.

    ``direct``: the image, and what it is an overlay of, can be opened with O_DIRECT. ``preallocated``: no
    block is missing in the file. ``backing_format`` is that of the base, ``block_sizes`` what
    ``matchVolume`` is to use.
    """

    direct: bool
    preallocated: bool = False
    backing_format: ImageFormat | None = None
    block_sizes: BlockSizes | None = None


def with_observations(devices: DevicesPlan, observed: Mapping[str, Observed]) -> DevicesPlan:
    """Complete the disks whose volumes (by name) were observed; the others stay as they are.

    Raises:
        HostUnsupported: ``cache: none`` or ``io: native`` and the file system has no O_DIRECT.
    """
    return replace(devices, disks=tuple(_complete(disk, observed.get(disk.name)) for disk in devices.disks))


def _complete(disk: DiskPlan, seen: Observed | None) -> DiskPlan:
    if seen is None or disk.source is None or disk.kind == "downwardMetrics":
        return disk  # the agent writes a metrics disk through the host's cache, so that is read, too
    cache = disk.cache or ("none" if seen.direct else "writethrough")
    if not seen.direct and "none" in (cache, "none" if disk.io == "native" else None):
        raise HostUnsupported(
            f"O_DIRECT on {disk.source.path}",
            f"disk {disk.name!r} asks for cache none or io native",
            hint="use cache writethrough or writeback, or move the image to another file system",
        )
    io = disk.io
    if io is None and cache == "none" and (disk.source.block or seen.preallocated):
        io = "native"
    backing = disk.backing
    if backing is not None and seen.backing_format is not None:
        backing = replace(backing, format=seen.backing_format)
    sizes = seen.block_sizes if disk.match_volume else disk.block_sizes
    return replace(disk, cache=cache, io=io, backing=backing, block_sizes=sizes)
