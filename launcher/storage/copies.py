# SPDX-License-Identifier: Apache-2.0
"""Files of snapshots, backups and dumps: their folders, their room, whether a dump is whole. Blocking."""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from launcher.errors import Exhausted, StorageError
from launcher.host.files import make_directory, remove_tree, sync_directory
from launcher.units import MIB, human_bytes

COPY_OVERHEAD: Final = 16 * MIB
"""What tables and headers of a few qcow2 images take beside their content, generously."""

_ELF64_LE: Final = b"\x7fELF\x02\x01"
_HEADER: Final = struct.Struct("<32xQQIHHHHHH")
_SEGMENT: Final = struct.Struct("<II6Q")
_SECTION: Final = struct.Struct("<IIQQQQIIQQ")
_MANY_SEGMENTS: Final = 0xFFFF
"""ELF-64 (System V ABI, chapters 4 and 5): with so many, the first section's sh_info has their number."""
_MOST_SEGMENTS: Final = 1 << 20
"""Far more than a guest has pieces of memory; what a header says is read up to here."""


def make_copy_directory(path: Path) -> None:
    """A new folder of ours for the files of one copy: nobody but root looks into it."""
    make_directory(path.parent.parent, mode=0o711)
    make_directory(path.parent, mode=0o711)
    make_directory(path, mode=0o711)
    sync_directory(path.parent)


def make_backup_directory(path: Path) -> None:
    """A new folder for the files of one backup, and that of its instance, in one that the user made.

    Raises:
        StorageError: the user's is not there, the new one is, or a folder cannot be made.
    """
    require_directory(path.parent.parent)
    make_directory(path.parent, mode=0o711)
    try:
        path.mkdir(mode=0o711)  # of two that want it, one has it
    except FileExistsError:
        raise StorageError("", f"{path} is there already", hint="choose another name") from None
    except OSError as error:
        raise StorageError("", f"{path} cannot be made: {error.strerror}") from error
    sync_directory(path.parent)


def require_directory(path: Path, *, files: Iterable[Path] = ()) -> None:
    """Check that the user's folder is there, and none of ``files`` yet.

    Raises:
        StorageError: it is not, or one is.
    """
    if not path.is_dir():
        raise StorageError("", f"{path} is not a directory", hint="make it first")
    for file in files:
        if os.path.lexists(file):
            raise StorageError("", f"{file} is there already", hint="choose another name, or remove it")


def require_room(path: Path, images: Iterable[Path]) -> None:
    """Check that the file system of ``path`` has the room that full copies of ``images`` take at most now.

    Raises:
        Exhausted: it has not. StorageError: an image or the folder cannot be looked at.
    """
    require_bytes(path, taken(images) + COPY_OVERHEAD)


def require_bytes(path: Path, wanted: int) -> None:
    """Check that the file system of ``path`` has ``wanted`` bytes left; raises as ``require_room``."""
    try:
        system = os.statvfs(path)
    except OSError as error:
        raise StorageError("", f"{path}: {error.strerror}") from error
    free = system.f_bavail * system.f_frsize
    if free < wanted:
        message = f"{path} has {human_bytes(free)} left, and {human_bytes(wanted)} are needed"
        raise Exhausted("disk space", message, hint="give it more room, or remove older copies")


def taken(images: Iterable[Path]) -> int:
    """Bytes that files take, and block devices have; raises StorageError."""
    return sum(map(_taken, images))


def names(path: Path) -> tuple[str, ...]:
    """Names of the regular files in a directory; raises StorageError."""
    try:
        with os.scandir(path) as entries:
            return tuple(entry.name for entry in entries if entry.is_file(follow_symlinks=False))
    except OSError as error:
        raise StorageError("", f"{path}: {error.strerror}") from error


def rename(path: Path, target: Path) -> None:
    """Give a file its name, durably; raises StorageError."""
    try:
        path.rename(target)
    except OSError as error:
        raise StorageError("", f"{path} cannot be renamed: {error.strerror}") from error
    sync_directory(target.parent)


def sync_files(paths: Iterable[Path]) -> None:
    """Make finished files durable, with their names.

    Raises:
        StorageError: one is missing, or the disk fails.
    """
    for path in paths:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise StorageError("", f"{path} cannot be made durable: {error.strerror}") from error
        sync_directory(path.parent)


def remove_files(paths: Iterable[Path]) -> None:
    """Remove files; none there is a success.

    Raises:
        StorageError: one cannot be removed.
    """
    for path in paths:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise StorageError("", f"{path} cannot be removed: {error.strerror}") from error


def remove_copy_directory(path: Path) -> None:
    """Remove the folder of a copy, and that of its instance when it was the last one."""
    remove_tree(path)
    try:
        path.parent.rmdir()
    except OSError:
        return  # others are in it


def is_whole_core(path: Path) -> bool:
    """Whether the ELF core at ``path`` has all that its header says; a dump that was cut short has not."""
    try:
        # A guest that shares the folder can put anything there.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as core:
            seen = os.fstat(core.fileno())
            size = seen.st_size
            if not stat.S_ISREG(seen.st_mode):
                return False
            head = core.read(_HEADER.size)
            if len(head) < _HEADER.size or not head.startswith(_ELF64_LE):
                return False
            offset, sections, _flags, _size, entry, count, *_rest = _HEADER.unpack(head)
            if count == _MANY_SEGMENTS:
                core.seek(sections)
                count = _SECTION.unpack(core.read(_SECTION.size))[7]
            if count > _MOST_SEGMENTS:
                return False
            core.seek(offset)
            ends = [_end(core.read(entry)) for _ in range(count)]
    except (OSError, struct.error):
        return False
    return bool(ends) and max(ends) <= size


def _end(segment: bytes) -> int:
    _type, _flags, offset, _virtual, _physical, length, _memory, _align = _SEGMENT.unpack(segment)
    return int(offset + length)


def _taken(image: Path) -> int:
    """Bytes that an image takes; of a block device all of it."""
    try:
        seen = image.stat()
        if not stat.S_ISBLK(seen.st_mode):
            return seen.st_blocks * 512
        with image.open("rb") as device:
            return device.seek(0, os.SEEK_END)
    except OSError as error:
        raise StorageError("", f"{image}: {error.strerror}") from error
