# SPDX-License-Identifier: Apache-2.0
"""Writes the archive that the Linux kernel takes as its initial root file system. Bytes in, bytes out.

The format is "newc" of the kernel's Documentation/driver-api/early-userspace/buffer-format.rst.
"""

from __future__ import annotations

import stat
from collections.abc import Iterable
from dataclasses import dataclass

_TRAILER = "TRAILER!!!"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A file, folder, symbolic link (``data`` is its target) or device; ``mode`` includes the file type."""

    path: str
    mode: int
    data: bytes = b""
    device: tuple[int, int] = (0, 0)


def folder(path: str) -> Entry:
    """A folder."""
    return Entry(path=path, mode=stat.S_IFDIR | 0o755)


def file(path: str, data: bytes, *, executable: bool = False) -> Entry:
    """A regular file."""
    return Entry(path=path, mode=stat.S_IFREG | (0o755 if executable else 0o644), data=data)


def link(path: str, target: str) -> Entry:
    """A symbolic link."""
    return Entry(path=path, mode=stat.S_IFLNK | 0o777, data=target.encode())


def character_device(path: str, major: int, minor: int) -> Entry:
    """A character device."""
    return Entry(path=path, mode=stat.S_IFCHR | 0o600, device=(major, minor))


def archive(entries: Iterable[Entry]) -> bytes:
    """All entries in the order given, which must name folders before what is in them."""
    out = bytearray()
    for inode, entry in enumerate(entries, 1):
        _append(out, entry, inode)
    _append(out, Entry(path=_TRAILER, mode=0), 0)
    return bytes(out)


def _append(out: bytearray, entry: Entry, inode: int) -> None:
    name = entry.path.encode() + b"\0"
    links = 2 if stat.S_ISDIR(entry.mode) else 1
    # ino, mode, uid, gid, nlink, mtime, filesize, devmajor, devminor, rdevmajor, rdevminor, namesize, check
    fields = (inode, entry.mode, 0, 0, links, 0, len(entry.data), 0, 0, *entry.device, len(name), 0)
    out += b"070701" + b"".join(b"%08X" % field for field in fields) + name
    _pad(out)
    out += entry.data
    _pad(out)


def _pad(out: bytearray) -> None:
    out += bytes(-len(out) % 4)
