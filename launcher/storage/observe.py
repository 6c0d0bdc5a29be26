# SPDX-License-Identifier: Apache-2.0
"""Look at finished images: O_DIRECT, allocation, formats. Blocking; call it in a thread. Changes nothing."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from launcher.plan.devices.model import BlockSizes, DevicesPlan, DiskPlan, DiskSource
from launcher.plan.devices.observed import Observed
from launcher.storage.block_sizes import block_sizes
from launcher.storage.images import probe_format
from launcher.storage.problems import told


def observe(devices: DevicesPlan) -> dict[str, Observed]:
    """What the files of all disks show, by volume.

    Raises:
        StorageError: an image cannot be opened, or a base image refers to other files.
    """
    return {disk.name: _observe(disk) for disk in devices.disks if disk.source is not None}


def _observe(disk: DiskPlan) -> Observed:
    assert disk.source is not None, "only disks with a source are looked at"
    direct = _direct(disk.name, disk.source.path)
    backing_format = None
    if disk.backing is not None:
        base = disk.backing.source.path
        direct = direct and _direct(disk.name, base)
        # Only what came out of an image is probed; a claim under an overlay is raw by definition.
        if not disk.backing.source.block and disk.kind == "containerDisk":
            backing_format = probe_format(disk.name, Path(base))
    return Observed(
        direct=direct,
        preallocated=disk.format == "raw" and _preallocated(disk.source.path),
        backing_format=backing_format,
        block_sizes=_block_sizes(disk, disk.source) if disk.match_volume else None,
    )


def _block_sizes(disk: DiskPlan, source: DiskSource) -> BlockSizes:
    """Of an overlay, those of its base: the guest is to see what the user's volume has."""
    seen = disk.backing.source if disk.backing is not None else source
    return block_sizes(disk.name, Path(seen.path), block=seen.block)


def _direct(volume: str, path: str) -> bool:
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC))
    except OSError as error:
        if error.errno == errno.EINVAL:
            return False
        raise told(volume, path, error, what="cannot be opened") from error
    return True


def _preallocated(path: str) -> bool:
    seen = Path(path).stat()
    return stat.S_ISREG(seen.st_mode) and seen.st_blocks * 512 >= seen.st_size
