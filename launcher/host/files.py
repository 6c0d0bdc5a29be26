# SPDX-License-Identifier: Apache-2.0
"""Files that must be right after a crash, and trees removed without following a link. Blocking calls.

All paths are ours (state and run directories); ``OSError`` becomes StorageError with the path.
"""

from __future__ import annotations

import contextlib
import glob
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from launcher.errors import StorageError

_UNFINISHED = re.compile(r"[0-9a-f]{12}")


def write_atomic(path: Path, data: bytes, *, mode: int = 0o600) -> None:
    """Replace ``path`` by ``data`` so that after a crash the old or the new file is there, whole.

    The file gets ``mode`` exactly, whatever the umask. A link at ``path`` is replaced, not followed.

    Raises:
        StorageError: it could not be written; ``path`` is as before.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    with storage_error("write", path):
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                os.fchmod(descriptor, mode)
                file.write(data)
                file.flush()
                os.fsync(descriptor)
            temporary.replace(path)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise
        sync_directory(path.parent)


def remove_unfinished(path: Path) -> None:
    """Remove what a killed ``write_atomic`` of ``path`` left beside it."""
    with storage_error("remove", path):
        for stray in path.parent.glob(f".{glob.escape(path.name)}.*"):
            if _UNFINISHED.fullmatch(stray.name.removeprefix(f".{path.name}.")):
                stray.unlink(missing_ok=True)


def sync_directory(path: Path) -> None:
    """Make new, renamed and removed names in ``path`` durable.

    Raises:
        StorageError: it could not be done.
    """
    with storage_error("sync", path):
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def make_directory(path: Path, *, mode: int = 0o700) -> None:
    """Make ``path`` and what is missing above it; ``path`` itself gets ``mode`` exactly, also if it exists.

    Raises:
        StorageError: it could not be made, or there is something else (a link, too) at ``path``.
    """
    with storage_error("make directory", path):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
        with contextlib.suppress(FileExistsError):
            path.mkdir(mode=mode)
        # opened without following a link, so that the mode goes to what was checked
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if stat.S_IMODE(os.fstat(descriptor).st_mode) != mode:
                os.fchmod(descriptor, mode)
        finally:
            os.close(descriptor)


def remove_tree(path: Path) -> None:
    """Remove ``path`` and all below; links are removed, never followed. Nothing there is a success.

    Raises:
        StorageError: something could not be removed (a mount point, a busy file); the rest may be gone.
    """
    with storage_error("remove", path):
        if path.is_symlink() or not path.is_dir():
            path.unlink(missing_ok=True)
            return
        # rmtree walks by descriptors on Linux, so a directory swapped for a link meanwhile is not followed
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(path)


@contextlib.contextmanager
def storage_error(verb: str, path: Path) -> Iterator[None]:
    """Let an ``OSError`` of the block be a StorageError: cannot ``verb`` ``path``."""
    try:
        yield
    except OSError as error:
        raise StorageError("", f"cannot {verb} {path}: {error.strerror or error}") from error
