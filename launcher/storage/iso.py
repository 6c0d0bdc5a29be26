# SPDX-License-Identifier: Apache-2.0
"""ISO 9660 images with Rock Ridge and Joliet names, the same bytes for the same files. Blocking.

Both sides of a migration build the image of a generated volume, and the guest must not notice. pycdlib writes
the present time and the local time zone; every date is set to ``DATE`` afterwards.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from pycdlib import PyCdlib
from pycdlib.pycdlibexception import PyCdlibException

from launcher.errors import StorageError
from launcher.host.files import write_atomic
from launcher.plan.media.material import MediaFile

MAX_BYTES = 64 << 20
"""Of all files of a volume together; a Secret or ConfigMap of Kubernetes holds 1 MiB at most."""
MAX_DEPTH = 7
"""Folders above a file: ISO 9660 allows eight levels (ECMA-119, 6.8.2.1)."""
LABEL = 32
JOLIET_LABEL = 16
"""Characters of a label (ECMA-119, 8.4.7), and of its copy for Joliet, which has two bytes for each."""
JOLIET_NAME = 64
"""Characters of a Joliet name; Windows reads these names, Linux the ones of Rock Ridge."""

_BLOCK = 2048
_LABEL_AT = 16 * _BLOCK + 40  # in the primary volume descriptor, which is the first
_FOLDER_MODE = 0o555
# 1 January 2000, 00:00 UTC as a directory record (ECMA-119, 9.1.5) and as a descriptor (8.4.26.1) have it.
_RECORD_DATE = bytes((100, 1, 1, 0, 0, 0, 0))
_VOLUME_DATE = b"2000010100000000\0"
_NO_DATE = b"0" * 16 + b"\0"


def write_iso(
    volume: str, path: Path, label: str, files: Sequence[MediaFile], *, uid: int | None, gid: int | None
) -> None:
    """Write the image of ``files``, readable by its owner alone; it appears under its name when it is whole.

    Raises:
        StorageError: the files do not fit, or the image cannot be written.
    """
    write_private(volume, path, iso_image(volume, label, files), uid=uid, gid=gid)


def write_private(volume: str, path: Path, data: bytes, *, uid: int | None, gid: int | None) -> None:
    """Write a file of mode 0600 for ``uid`` and ``gid`` (None: the agent's); raises StorageError."""
    try:
        write_atomic(path, data, mode=0o600)
        if uid is not None or gid is not None:
            os.chown(path, -1 if uid is None else uid, -1 if gid is None else gid, follow_symlinks=False)
    except StorageError as error:
        raise StorageError(volume, error.message) from error
    except OSError as error:
        raise StorageError(volume, f"cannot hand {path} to QEMU's user: {error.strerror}") from error


def iso_image(volume: str, label: str, files: Sequence[MediaFile]) -> bytes:
    """The image of ``files`` with the volume label ``label``; raises StorageError when they do not fit."""
    if not label.isascii() or len(label) > LABEL:
        raise StorageError(volume, f"the label {label!r} has more than {LABEL} characters, or not only ASCII")
    total = sum(len(file.data) for file in files)
    if total > MAX_BYTES:
        raise StorageError(volume, f"its files have {total} bytes; at most {MAX_BYTES} are taken")
    iso, out = PyCdlib(), io.BytesIO()
    iso.new(interchange_level=1, vol_ident=label[:JOLIET_LABEL], rock_ridge="1.09", joliet=3)
    try:
        _fill(volume, iso, files)
        iso.write_fp(out)
    except PyCdlibException as error:
        raise StorageError(volume, f"its files do not go into one image: {error}") from error
    finally:
        iso.close()
    image = bytearray(out.getvalue())
    image[_LABEL_AT : _LABEL_AT + LABEL] = label.encode().ljust(LABEL)  # pycdlib knows one label for both
    _set_dates(image)
    return bytes(image)


def _fill(volume: str, iso: PyCdlib, files: Sequence[MediaFile]) -> None:
    """Names on the ISO 9660 side are only counted: no reader that is of use here shows them."""
    folders: dict[str, tuple[str, str]] = {"": ("", "")}
    for number, file in enumerate(sorted(files, key=lambda file: file.path)):
        parent, _, name = file.path.rpartition("/")
        if len(PurePosixPath(file.path).parts) > MAX_DEPTH + 1:
            raise StorageError(volume, f"{file.path!r} lies deeper than {MAX_DEPTH} folders")
        above, above_joliet = _folder(iso, folders, parent)
        iso.add_fp(
            io.BytesIO(file.data),
            len(file.data),
            f"{above}/F{number:07d}.;1",
            rr_name=name,
            joliet_path=f"{above_joliet}/{_joliet(name)}",
            file_mode=0o100000 | file.mode,
        )


def _folder(iso: PyCdlib, known: dict[str, tuple[str, str]], path: str) -> tuple[str, str]:
    if path in known:
        return known[path]
    parent, _, name = path.rpartition("/")
    above, above_joliet = _folder(iso, known, parent)
    made = (f"{above}/D{len(known):07d}", f"{above_joliet}/{_joliet(name)}")
    iso.add_directory(made[0], rr_name=name, joliet_path=made[1], file_mode=0o040000 | _FOLDER_MODE)
    known[path] = made
    return made


def _joliet(name: str) -> str:
    """The name, or a part of it and a hash when it is too long or has what Joliet forbids."""
    if len(name) <= JOLIET_NAME and not set(name) & set("*/:;?\\"):
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:16]
    kept = "".join(c for c in name[: JOLIET_NAME - 17] if c not in "*/:;?\\")
    return f"{kept}-{digest}"


def _set_dates(image: bytearray) -> None:
    """Overwrite every date: in the volume descriptors, in directory records and in Rock Ridge's ``TF``."""
    for sector in range(16, len(image) // _BLOCK):
        start = sector * _BLOCK
        kind = image[start]
        if kind in (1, 2):  # primary and supplementary volume descriptor
            image[start + 813 : start + 881] = _VOLUME_DATE * 2 + _NO_DATE * 2
            root = start + 156
            image[root + 18 : root + 25] = _RECORD_DATE
            _set_folder(image, _little(image, root + 2), _little(image, root + 10), seen=set())
        elif kind == 255:  # the terminator
            return


def _set_folder(image: bytearray, block: int, size: int, *, seen: set[int]) -> None:
    if block in seen:
        return
    seen.add(block)
    for record in _records(image, block * _BLOCK, size):
        image[record + 18 : record + 25] = _RECORD_DATE
        name_length = image[record + 32]
        system_use = record + 33 + name_length + (1 - name_length % 2)
        _set_rock_ridge(image, system_use, record + image[record])
        if image[record + 25] & 2:  # a directory
            _set_folder(image, _little(image, record + 2), _little(image, record + 10), seen=seen)


def _records(image: bytearray, start: int, size: int) -> Iterator[int]:
    """Offsets of directory records; none crosses a block, and the rest of a block is zero (6.8.1.1)."""
    place = start
    while place < start + size:
        if image[place] == 0:
            place += _BLOCK - place % _BLOCK
        else:
            yield place
            place += image[place]


def _set_rock_ridge(image: bytearray, place: int, end: int) -> None:
    """System use entries (IEEE P1281): two letters, a length. ``CE`` says where the list goes on."""
    while place + 4 <= end and image[place + 2] >= 4:
        tag, length = bytes(image[place : place + 2]), image[place + 2]
        if tag == b"TF":
            for date in range(place + 5, place + length, 7):
                image[date : date + 7] = _RECORD_DATE
        elif tag == b"CE":
            begin = _little(image, place + 4) * _BLOCK + _little(image, place + 12)
            _set_rock_ridge(image, begin, begin + _little(image, place + 20))
        place += length


def _little(image: bytearray, place: int) -> int:
    return int.from_bytes(image[place : place + 4], "little")
