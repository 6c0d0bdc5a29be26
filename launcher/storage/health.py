# SPDX-License-Identifier: Apache-2.0
"""Can a volume's file be used now, and how large may it be? Blocking; opens to read, changes nothing."""

from __future__ import annotations

import mmap
import os
import stat
from contextlib import suppress
from pathlib import Path

from launcher.errors import StorageError
from launcher.plan.steps import CreateImage
from launcher.storage.images import fitting
from launcher.units import MIB, human_bytes

LEAST_ROOM = MIB
"""A guest writes in pieces of up to a MiB: with less free it would stop again at once."""
_BLOCK = 4096


def fault(path: str, *, block: bool, room: bool) -> str:
    """What is wrong with a file or device, in words; empty: nothing that reading it shows.

    ``room``: it is asked for more blocks than it has, so its file system must have some left.
    """
    try:
        if room and not block:
            system = os.statvfs(path)
            left = system.f_bavail * system.f_frsize
            if left < LEAST_ROOM:
                return f"its file system has {human_bytes(left)} left"
        _read(path)
    except OSError as error:
        return f"it cannot be read: {error.strerror}"
    return ""


def possible_size(path: str, *, step: CreateImage | None) -> tuple[int, bool]:
    """Bytes that the volume has or may have, and whether that is less than ``step`` asks for.

    Raises:
        StorageError: it cannot be looked at.
    """
    volume = step.volume if step is not None else ""
    try:
        present = _size(path)
        if step is None or step.size is None or step.size <= present:
            return present, False
        size = max(present, fitting(step, Path(path), present))
    except OSError as error:
        raise StorageError(volume, f"{path}: {error.strerror}") from error
    return size, size < step.size


def take_room(volume: str, path: str, size: int) -> None:
    """Take all blocks that the image lacks up to ``size``, while a guest runs on it.

    Raises:
        StorageError: there is no room.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            present = os.fstat(descriptor).st_size
            if size > present:
                os.posix_fallocate(descriptor, present, size - present)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise StorageError(volume, f"{path}: {error.strerror}", problem="VolumeFull") from error


def _size(path: str) -> int:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        return os.lseek(descriptor, 0, os.SEEK_END)
    finally:
        os.close(descriptor)


def _read(path: str) -> None:
    """The first block, from the storage itself where that is possible."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise IsADirectoryError(21, os.strerror(21))
        with suppress(OSError):
            os.posix_fadvise(descriptor, 0, _BLOCK, os.POSIX_FADV_DONTNEED)
        with mmap.mmap(-1, _BLOCK) as buffer:
            os.preadv(descriptor, [buffer], 0)
    finally:
        os.close(descriptor)
