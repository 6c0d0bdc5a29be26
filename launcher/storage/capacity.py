# SPDX-License-Identifier: Apache-2.0
"""How large a disk is for its guest, read from the image itself. Blocking; opens to read, locks nothing."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from launcher.errors import StorageError

_QCOW2: Final = b"QFI\xfb"
_HEADER: Final = 32
_SIZE_AT: Final = 24
"""Offset of the virtual size in a qcow2 header (QEMU's docs/interop/qcow2.txt), 8 bytes, big-endian."""


def virtual_size(path: Path, *, qcow2: bool) -> int:
    """Bytes that the guest sees of the file or block device at ``path``.

    ``qcow2``: the format it is used with; it is never guessed, for a guest can write a header.

    Raises:
        StorageError: it cannot be read, or is no qcow2 image although it should be.
    """
    try:
        with path.open("rb") as image:
            if qcow2:
                return _of_qcow2(path, image.read(_HEADER))
            if stat.S_ISBLK(os.fstat(image.fileno()).st_mode):
                return image.seek(0, os.SEEK_END)
            return os.fstat(image.fileno()).st_size
    except OSError as error:
        raise StorageError("", f"{path} cannot be read: {error.strerror}") from error


def _of_qcow2(path: Path, header: bytes) -> int:
    if len(header) < _HEADER or not header.startswith(_QCOW2):
        raise StorageError("", f"{path} is no qcow2 image")
    return int.from_bytes(header[_SIZE_AT:_HEADER])
