# SPDX-License-Identifier: Apache-2.0
"""OCI archives: an image layout in one tar file. Blocking; call it in a thread.

Only members that belong to a layout are taken, under names of our own making.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from launcher.errors import StorageError
from launcher.storage.oci import layout
from launcher.storage.oci.tar import Member, members

_BLOB = re.compile(r"(?:\./)*blobs/sha256/([0-9a-f]{64})\Z")
_TOP = re.compile(r"(?:\./)*(oci-layout|index\.json)\Z")
_MANIFESTS = 4 << 20
"""A blob that may be a manifest is no larger."""
_CHUNK = 1 << 20


def stamp(path: Path) -> str:
    """What changes when the file does; raises StorageError when there is none."""
    try:
        seen = path.stat()
    except OSError as error:
        raise StorageError("", f"{path}: {error.strerror}") from error
    return f"{seen.st_dev}:{seen.st_ino}:{seen.st_size}:{seen.st_mtime_ns}"


def digest(path: Path, tag: str, *, limit: int) -> str:
    """The digest of the archive's image ``tag``; only what may be a manifest is read.

    Raises:
        StorageError: no archive, no such tag, or broken.
    """
    with tempfile.TemporaryDirectory(prefix="launcher-oci-") as scratch:
        _unpack(path, Path(scratch), limit=limit, largest=_MANIFESTS)
        return layout.open_image(Path(scratch), tag, limit=limit).digest


def unpack(path: Path, folder: Path, *, limit: int) -> None:
    """Write the layout into ``folder``; raises StorageError."""
    _unpack(path, folder, limit=limit, largest=limit)


def _unpack(path: Path, folder: Path, *, limit: int, largest: int) -> None:
    blobs = folder / "blobs" / "sha256"
    blobs.mkdir(parents=True, exist_ok=True)
    try:
        with path.open("rb") as stream:
            for member in members(stream, limit=limit):
                blob, top = _BLOB.match(member.path), _TOP.match(member.path)
                if not member.regular or member.size > largest:
                    continue
                if blob is not None:
                    _write(member, blobs / blob[1])
                elif top is not None:
                    _write(member, folder / top[1])
    except OSError as error:
        raise StorageError("", f"{path} cannot be unpacked: {error.strerror}") from error


def _write(member: Member, target: Path) -> None:
    with target.open("wb") as out:
        while chunk := member.read(_CHUNK):
            out.write(chunk)
