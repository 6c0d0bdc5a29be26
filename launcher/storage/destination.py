# SPDX-License-Identifier: Apache-2.0
"""Where a disk is copied to while its guest runs: will it do, and is it as large as the copy must be?

A copy has the size of what it is a copy of. An image file is brought to that size; of a device that is larger
only the beginning is used (a slice), for it cannot be made smaller.
"""

from __future__ import annotations

import asyncio
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from launcher.errors import CommandFailed, StorageError, TimedOut
from launcher.host.run import run
from launcher.units import human_bytes

_RESIZE_TIMEOUT_S = 60.0
_BLOCK = 512  # the unit of st_blocks, stat(2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """The file or device ``path`` that ``volume`` is copied to: ``size`` bytes, of which ``taken`` are not
    holes. ``capacity`` is what its claim is said to have, 0: nothing; ``preallocated``: its blocks are to be
    taken at once."""

    volume: str
    path: str
    block: bool
    size: int
    taken: int = 0
    capacity: int = 0
    preallocated: bool = False


def objection(spot: Spot) -> str:
    """Why nothing can be copied there; empty: it can. Blocking; changes nothing."""
    wanted = human_bytes(spot.size)
    if not spot.size:
        return "how large the disk is could not be found out"
    if 0 < spot.capacity < spot.size:
        return f"the claim has {human_bytes(spot.capacity)}, and the disk {wanted}"
    path = Path(spot.path)
    try:
        return _device(path, spot) if spot.block else _image(path, spot)
    except OSError as error:
        return f"{path}: {error.strerror}"


async def fit(spot: Spot) -> int:
    """Make an image file that is larger as large as the disk; what is smaller or missing is left to others.

    Returns the bytes that a copy uses of a device that is larger; 0: all of it.

    Raises:
        StorageError: it cannot be done, or somebody has the image open.
    """
    present = await asyncio.to_thread(_size, spot)
    if spot.block:
        return spot.size if present is not None and present > spot.size else 0
    if present is None or present <= spot.size:
        return 0
    # Emptied first, as far as qemu-img does it: a copy with holes is to take no more room than it needs.
    sizes = (spot.size,) if spot.preallocated else (_BLOCK, spot.size)
    for size in sizes:
        argv = ["qemu-img", "resize", "-q", "--shrink", "-f", "raw", spot.path, str(size)]
        try:
            await run(argv, timeout_s=_RESIZE_TIMEOUT_S)
        except CommandFailed as error:
            locked = "VolumeLocked" if "lock" in error.stderr else ""
            message = f"cannot bring {spot.path} to {spot.size} bytes: {error.message}"
            raise StorageError(spot.volume, message, problem=locked) from error
        except TimedOut as error:
            raise StorageError(spot.volume, error.message) from error
    return 0


def _device(path: Path, spot: Spot) -> str:
    if not path.exists():
        return f"{path} is not on this node"
    if not stat.S_ISBLK(path.stat().st_mode):
        return f"{path} is not a block device"
    present = _size(spot) or 0
    if present < spot.size:
        return f"{path} has {human_bytes(present)}, and the disk {human_bytes(spot.size)}"
    return ""


def _image(path: Path, spot: Spot) -> str:
    if not path.parent.is_dir():
        return f"the directory {path.parent} is not on this node"
    if path.is_symlink() or (path.exists() and not path.is_file()):
        return f"{path} is not a regular file"
    held = path.stat().st_blocks * _BLOCK if path.exists() else 0
    system = os.statvfs(path.parent)
    left = system.f_bavail * system.f_frsize + held
    needed = spot.size if spot.preallocated else min(spot.taken, spot.size)
    if needed > left:
        return f"{path.parent} has {human_bytes(left)} left, and the disk takes {human_bytes(needed)}"
    return ""


def _size(spot: Spot) -> int | None:
    """Bytes of the file or device; None: there is none."""
    try:
        descriptor = os.open(spot.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StorageError(spot.volume, f"{spot.path}: {error.strerror}") from error
    try:
        return os.lseek(descriptor, 0, os.SEEK_END)
    finally:
        os.close(descriptor)
