# SPDX-License-Identifier: Apache-2.0
"""vhostmd's metrics disk: a small file that the host rewrites while a guest reads it. Blocking calls.

The file is 256 KiB. It begins with four big-endian 32-bit integers: the signature ``mvbd``, a flag that is 1
while the rest is being rewritten, the sum of the content's bytes and its length; the content follows at once
(vhostmd, ``mdisk_header``). A reader takes the content only when the flag is 0 and the sum is right.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Final

from launcher.errors import Bug, StorageError

SIZE: Final = 256 * 1024
HEADER: Final = struct.Struct(">4sIII")
SIGNATURE: Final = b"mvbd"
MAX_CONTENT: Final = SIZE - HEADER.size


def create(volume: str, path: Path, content: bytes, *, mode: int = 0o644) -> None:
    """Make the disk at ``path``; one that is there is left as it is. A crash leaves it whole or absent.

    Raises:
        StorageError: with the volume's name.
    """
    partial = path.with_name(f".{path.name}.partial")
    try:
        if path.exists():
            return
        with partial.open("wb") as file:
            file.write(_header(content, busy=False) + content)
            file.truncate(SIZE)
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError as error:
        raise StorageError(volume, f"cannot make {path}: {error.strerror}") from error


def write(path: Path, content: bytes) -> None:
    """Replace the content of the disk at ``path``. A guest that reads meanwhile sees that and reads again.

    Raises:
        StorageError: it could not be written.
    """
    try:
        # Not a new file: QEMU has this one open. A link in its place is not followed.
        descriptor = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.pwrite(descriptor, _header(content, busy=True), 0)
            os.pwrite(descriptor, content, HEADER.size)
            os.pwrite(descriptor, _header(content, busy=False), 0)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise StorageError("", f"cannot write {path}: {error.strerror}") from error


def read(data: bytes) -> bytes | None:
    """The content of a disk that starts with ``data``; None while it is being rewritten, or is none."""
    if len(data) < HEADER.size:
        return None
    signature, busy, checksum, length = HEADER.unpack_from(data)
    content = data[HEADER.size : HEADER.size + length]
    if signature != SIGNATURE or busy or length != len(content) or checksum != _sum(content):
        return None
    return content


def _header(content: bytes, *, busy: bool) -> bytes:
    if len(content) > MAX_CONTENT:
        raise Bug(f"{len(content)} bytes of metrics do not fit")
    return HEADER.pack(SIGNATURE, int(busy), _sum(content), len(content))


def _sum(content: bytes) -> int:
    return sum(content) & 0xFFFFFFFF
