# SPDX-License-Identifier: Apache-2.0
"""The block sizes of a volume, for guests that are to see them. Blocking; changes nothing."""

from __future__ import annotations

import fcntl
import os
import struct
from pathlib import Path

from launcher.errors import StorageError
from launcher.plan.devices.model import BlockSizes

# Linux, include/uapi/linux/fs.h: logical and physical block size of a device, as an int.
_BLKSSZGET = 0x1268
_BLKPBSZGET = 0x127B
_SYS = Path("/sys/dev/block")


def block_sizes(volume: str, path: Path, *, block: bool, sysfs: Path = _SYS) -> BlockSizes:
    """Sizes of the device ``path``, or of the file system that holds the file ``path``.

    Raises:
        StorageError: it cannot be asked, or names no size.
    """
    try:
        if not block:
            size = os.statvfs(path).f_bsize
            return BlockSizes(logical=size, physical=size, discard_granularity=size)
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            logical, physical = _ask(descriptor, _BLKSSZGET), _ask(descriptor, _BLKPBSZGET)
            number = os.fstat(descriptor).st_rdev
        finally:
            os.close(descriptor)
    except OSError as error:
        raise StorageError(volume, f"{path} does not tell its block size: {error.strerror}") from error
    if not logical and not physical:
        raise StorageError(volume, f"{path} does not tell its block size")
    logical, physical = logical or physical, physical or logical
    granularity = _granularity(sysfs / f"{os.major(number)}:{os.minor(number)}" / "queue")
    if granularity % logical:
        granularity = physical
    return BlockSizes(logical=logical, physical=physical, discard_granularity=granularity)


def _ask(descriptor: int, request: int) -> int:
    answer = fcntl.ioctl(descriptor, request, bytes(4))
    return int(struct.unpack("=i", answer)[0])


def _granularity(queue: Path) -> int:
    """0 where the kernel does not say, and of partitions, which have no queue of their own."""
    try:
        return int((queue / "discard_granularity").read_text())
    except (OSError, ValueError):
        return 0
