# SPDX-License-Identifier: Apache-2.0
"""Files out of container images, one for each (image digest, path in the image), shared by all instances.

A file of the cache is read-only and is handed out as a hard link: removing an instance's directory never
touches the cache, and a link count of one says that nobody uses a file. Blocking; any thread may call.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import shutil
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from launcher.errors import StorageError

DEFAULT_FILE = "default"
"""Key of the one file in /disk, whatever its name is."""
ABANDONED_S = 3600.0
"""After that long nobody goes on with a pull that was killed."""
_REFERENCES = "references"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    path: Path
    size: int
    used: float


class ImageCache:
    """The cache in ``root``; ``pulls`` is where registries' images lie until the files are taken out of them.

    For ``limit`` (bytes, 0: none) files that nobody uses are removed, the least recently used first.
    """

    def __init__(self, root: Path, pulls: Path, *, limit: int) -> None:
        self._root = root
        self._pulls = pulls
        self._limit = limit
        self._lock = threading.Lock()
        self._active: set[Path] = set()
        self._held: Counter[str] = Counter()
        self._mark = secrets.token_hex(4)

    def has(self, digest: str, key: str) -> bool:
        """Whether the file is there now."""
        return self._file(digest, key).exists()

    @contextlib.contextmanager
    def holding(self, digest: str) -> Iterator[None]:
        """While the block runs, nothing of the image is removed."""
        name = digest.removeprefix("sha256:")
        with self._lock:
            self._held[name] += 1
        try:
            yield
        finally:
            with self._lock:
                self._held[name] -= 1

    @contextlib.contextmanager
    def filling(self, digest: str, key: str) -> Iterator[Path]:
        """A path to write the file to; it is in the cache when the block ends well, and gone otherwise."""
        path = self._file(digest, key)
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f"{path.name}.{self._mark}.partial")
        try:
            yield partial
            partial.chmod(0o444)
            os.replace(partial, path)  # noqa: PTH105 - atomic by intent
        finally:
            partial.unlink(missing_ok=True)

    def link(self, digest: str, key: str, target: Path) -> bool:
        """Hand the file out as ``target``, unless that exists; False: it is not in the cache any more."""
        file = self._file(digest, key)
        target.parent.mkdir(parents=True, exist_ok=True)
        with self._lock:
            try:
                os.utime(file)
                with contextlib.suppress(FileExistsError):
                    os.link(file, target)
            except FileNotFoundError:
                return False
            except OSError as error:
                raise StorageError("", f"cannot link {file} to {target}: {error.strerror}") from error
        return True

    def digest_of(self, path: Path) -> str | None:
        """The image that a file handed out came from; None: it is not in the cache any more."""
        number = path.stat().st_ino
        for folder in self._folders():
            if any(file.stat().st_ino == number for file in folder.iterdir()):
                return f"sha256:{folder.name}"
        return None

    def digests(self) -> tuple[str, ...]:
        """The images that something is there of."""
        return tuple(f"sha256:{folder.name}" for folder in self._folders())

    def remember(self, reference: str, digest: str) -> None:
        """Note what a reference stood for."""
        path = self._reference(reference)
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(f".{self._mark}.partial")
        partial.write_text(digest)
        os.replace(partial, path)  # noqa: PTH105 - atomic by intent

    def recall(self, reference: str) -> str | None:
        """What a reference stood for when it was looked up last."""
        try:
            return self._reference(reference).read_text() or None
        except FileNotFoundError:
            return None

    @contextlib.contextmanager
    def pulling(self, digest: str) -> Iterator[Path]:
        """A folder for the image's layout. It stays when the block fails, for the next attempt to go on."""
        folder = self._pulls / digest.removeprefix("sha256:")
        self._active.add(folder)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            yield folder
            shutil.rmtree(folder, ignore_errors=True)
        finally:
            self._active.discard(folder)

    def sweep(self, *, now: float | None = None) -> None:
        """Remove what is unfinished and abandoned, then unused files as far as the limit asks for it."""
        at = time.time() if now is None else now
        for folder in _children(self._pulls):
            if folder not in self._active and at - folder.stat().st_mtime > ABANDONED_S:
                shutil.rmtree(folder, ignore_errors=True)
        for partial in self._root.glob("*/*.partial"):
            if self._mark not in partial.name:
                partial.unlink(missing_ok=True)
        if self._limit:
            self._evict()

    def _evict(self) -> None:
        with self._lock:
            kept = [_look(file) for folder in self._folders() for file in folder.iterdir()]
            taken = sum(file.size for file in kept if file is not None)
            unused = [f for f in kept if f is not None and f.used and not self._held[f.path.parent.name]]
            for file in sorted(unused, key=lambda file: file.used):
                if taken <= self._limit:
                    break
                file.path.unlink(missing_ok=True)
                with contextlib.suppress(OSError):  # others of the image are still there
                    file.path.parent.rmdir()
                taken -= file.size

    def _folders(self) -> list[Path]:
        return [folder for folder in _children(self._root) if folder.name != _REFERENCES]

    def _file(self, digest: str, key: str) -> Path:
        return self._root / digest.removeprefix("sha256:") / key

    def _reference(self, reference: str) -> Path:
        return self._root / _REFERENCES / hashlib.sha256(reference.encode()).hexdigest()


def file_key(path: str | None) -> str:
    """The key of the file at ``path`` in an image; None: the one in /disk."""
    return DEFAULT_FILE if path is None else hashlib.sha256(path.encode()).hexdigest()[:16]


def _look(file: Path) -> _Kept | None:
    """``used`` is 0 for a file that an instance has."""
    try:
        seen = file.stat()
    except FileNotFoundError:
        return None
    partial = file.name.endswith(".partial")
    idle = seen.st_nlink == 1 and not partial
    return _Kept(path=file, size=seen.st_blocks * 512, used=seen.st_mtime if idle else 0.0)


def _children(folder: Path) -> list[Path]:
    try:
        return sorted(child for child in folder.iterdir() if child.is_dir())
    except FileNotFoundError:
        return []
