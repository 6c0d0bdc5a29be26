# SPDX-License-Identifier: Apache-2.0
"""Finds QEMU's descriptor files (firmware, vhost-user programs) and reads them. Blocking; parses nothing.

Source: QEMU, docs/interop/firmware.json and vhost-user.json: a file of a later directory replaces the one
of the same name in an earlier directory, an empty one hides it; names rank them over all directories.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PACKAGED: Final = Path("/usr/share/qemu")
ADMINISTERED: Final = Path("/etc/qemu")
SUFFIX: Final = ".json"
MAX_BYTES: Final = 1 << 20
"""A descriptor holds a few hundred bytes; a larger file is none."""

Stamp = tuple[tuple[str, int, int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Descriptors:
    """``texts`` by file name, in the order of their rank; ``stamp`` changes when a file does."""

    texts: Mapping[str, str]
    stamp: Stamp


def directories(kind: str, *, privileged: bool, environment: Mapping[str, str]) -> tuple[Path, ...]:
    """Where descriptors of ``kind`` (``firmware``, ``vhost-user``) lie, the least important directory first.

    Like libvirt, a privileged process does not look into the directories of a person.
    """
    found = (PACKAGED / kind, ADMINISTERED / kind)
    if privileged:
        return found
    home = environment.get("HOME", "")
    config = environment.get("XDG_CONFIG_HOME", "") or (f"{home}/.config" if home else "")
    return (*found, Path(config, "qemu", kind)) if config.startswith("/") else found


def read(folders: Iterable[Path], *, before: Descriptors | None = None) -> Descriptors:
    """The descriptors in ``folders``; ``before`` itself when no file has changed since. Files that cannot be
    read are left out."""
    files: dict[str, Path] = {}
    for folder in folders:
        with contextlib.suppress(OSError):  # most hosts lack some of the directories
            files |= {path.name: path for path in folder.iterdir() if path.suffix == SUFFIX}
    ranked = [files[name] for name in sorted(files)]
    stamp = _stamp(ranked)
    if before is not None and before.stamp == stamp:
        return before
    texts = {path.name: text for path in ranked if (text := _text(path)) is not None}
    return Descriptors(texts=texts, stamp=stamp)


def present(paths: Iterable[str]) -> frozenset[str]:
    """Those of ``paths`` that are files or links to some."""
    return frozenset(path for path in paths if Path(path).is_file())


def _stamp(paths: Iterable[Path]) -> Stamp:
    found = []
    for path in paths:
        with contextlib.suppress(OSError):
            status = path.stat()
            found.append((str(path), status.st_ino, status.st_mtime_ns, status.st_size))
    return tuple(found)


def _text(path: Path) -> str | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            data = file.read(MAX_BYTES + 1)
        return data.decode() if len(data) <= MAX_BYTES else None
    except (OSError, UnicodeDecodeError):
        return None
