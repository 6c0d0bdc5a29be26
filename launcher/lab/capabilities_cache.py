# SPDX-License-Identifier: Apache-2.0
"""Keeps what libvirtd learned about QEMU between labs, so that the first guest starts 1-3 s earlier.

libvirtd itself checks each file against the QEMU binary, the kernel and its own build and probes again when
one is stale, so old files cost nothing. Every file appears by a rename: two labs may share the folder.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

SUBFOLDER = Path("qemu/capabilities")
"""Where libvirtd keeps its files below /var/cache/libvirt."""


def default_folder() -> Path:
    """``$LAUNCHER_LAB_CACHE``, else ``~/.cache/launcher/lab``."""
    configured = os.environ.get("LAUNCHER_LAB_CACHE")
    return Path(configured) if configured else Path.home() / ".cache" / "launcher" / "lab"


def kept(cache: Path, *, kvm: bool, release: str = "") -> Path:
    """The folder for one kind of node; ``release`` when its QEMU is not the machine's."""
    return cache / "libvirt" / "-".join(filter(None, ("kvm" if kvm else "tcg", release)))


def restore(folder: Path, node_cache: Path) -> None:
    """Copy the kept files into a node that has not started yet."""
    _copy(folder, node_cache / SUBFOLDER, replace=False)


def keep(folder: Path, node_cache: Path) -> None:
    """Copy a node's files out; the newest wins."""
    _copy(node_cache / SUBFOLDER, folder, replace=True)


def _copy(source: Path, target: Path, *, replace: bool) -> None:
    if not source.is_dir():
        return
    target.mkdir(parents=True, exist_ok=True)
    for file in source.glob("*.xml"):
        destination = target / file.name
        if destination.exists() and (not replace or _same(file, destination)):
            continue
        with tempfile.NamedTemporaryFile(dir=target, prefix=".new-", delete=False) as partial:
            shutil.copy2(file, partial.name)
        Path(partial.name).rename(destination)


def _same(one: Path, other: Path) -> bool:
    return one.read_bytes() == other.read_bytes()
