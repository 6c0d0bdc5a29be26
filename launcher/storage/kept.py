# SPDX-License-Identifier: Apache-2.0
"""Moves firmware variables and TPM state between an instance and where they wait for the next. Blocking.

A move is one rename, or on another file system a copy that is renamed when it is whole: after a crash the
state is at one of the two places, complete. Owners and modes stay as QEMU and swtpm need them.
"""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

from launcher.host.files import make_directory, remove_tree, storage_error, sync_directory
from launcher.plan.steps import UseState

_DIRECTORY_MODE = 0o700
_PASSABLE = 0o711  # as libvirt makes it


def take_state(step: UseState) -> None:
    """Move what is kept to where the instance wants it; what is there already is the newer one.

    Raises:
        StorageError: it could not be moved, and is kept.
    """
    path, kept = Path(step.path), _kept(step)
    if kept is not None and kept.exists() and not path.exists():
        with storage_error("make directory", path.parent):
            path.parent.mkdir(parents=True, exist_ok=True, mode=_PASSABLE)
        _move(kept, path)
        _prune(kept.parent)


def put_away_state(step: UseState, *, discard: bool) -> None:
    """Keep the state of an instance that ended; with ``discard``, or when it is not to be kept, remove it.

    Raises:
        StorageError: it could not be moved, and is where it was.
    """
    path, kept = Path(step.path), _kept(step)
    if kept is not None and not discard and path.exists():
        make_directory(kept.parent, mode=_DIRECTORY_MODE)
        remove_tree(kept)
        _move(path, kept)
    remove_tree(path)


def forget_state(directory: Path) -> bool:
    """Remove all that is kept in ``directory``; returns whether there was something."""
    there = directory.exists()
    remove_tree(directory)
    _prune(directory.parent)
    return there


def _kept(step: UseState) -> Path | None:
    return Path(step.kept) if step.kept else None


def _move(source: Path, target: Path) -> None:
    with storage_error(f"move to {target}:", source):
        try:
            source.rename(target)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            unfinished = target.with_name(f".{target.name}.moving")
            remove_tree(unfinished)
            _copy(source, unfinished)
            unfinished.rename(target)
            remove_tree(source)
    sync_directory(target.parent)
    sync_directory(source.parent)


def _copy(source: Path, target: Path) -> None:
    """Copy a file, or a directory with all below, with owners and modes; durable when it returns.

    Links are left out: neither firmware nor TPM makes any, and they are not to be followed.
    """
    if source.is_symlink():
        return
    if source.is_dir():
        target.mkdir()
        for entry in source.iterdir():
            _copy(entry, target / entry.name)
    else:
        shutil.copyfile(source, target)
    status = source.stat()
    os.chown(target, status.st_uid, status.st_gid)
    target.chmod(status.st_mode & 0o7777)
    descriptor = os.open(target, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _prune(directory: Path) -> None:
    """Remove ``directory`` and the one above, which only hold names, when they are empty."""
    for path in (directory, directory.parent):
        try:
            path.rmdir()
        except OSError:
            return
