# SPDX-License-Identifier: Apache-2.0
"""Who may have which image of the cache: those to whom a registry has shown it. Blocking; asks no registry.

An image in the cache is no secret of the node, but of its repository: without this, naming a private image
that somebody else has pulled would be enough to read it. Logins are remembered as keyed digests only.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import secrets
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

from launcher.errors import StorageError
from launcher.host.files import make_directory, write_atomic

_KEY_FILE = "key"
_KEY_BYTES = 32
_ANYBODY = "anybody"
MOST_LOGINS = 100
"""Remembered for an image of a repository; the oldest is forgotten, and asks its registry again."""


class Access:
    """The records in ``root``, which only the agent's user can read. One thread at a time for one digest."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def granted(self, repository: str, digest: str, login: Mapping[str, bytes] | None) -> bool:
        """Whether the registry has shown the image to this login, or to anybody without one."""
        known = self._known(repository, digest)
        return _ANYBODY in known or (login is not None and self._mark(login) in known)

    def grant(self, repository: str, digest: str, login: Mapping[str, bytes] | None) -> None:
        """The registry has just shown it to ``login``."""
        mark = _ANYBODY if login is None else self._mark(login)
        known = self._known(repository, digest)
        if mark not in known:
            path = self._file(repository, digest)
            make_directory(path.parent, mode=0o700)
            write_atomic(path, "\n".join((*known, mark)[-MOST_LOGINS:]).encode(), mode=0o600)

    def keep(self, digests: Iterable[str]) -> None:
        """Forget all images but these."""
        kept = {digest.removeprefix("sha256:") for digest in digests}
        for folder in _folders(self._root):
            if folder.name not in kept:
                shutil.rmtree(folder, ignore_errors=True)

    def _known(self, repository: str, digest: str) -> tuple[str, ...]:
        try:
            return tuple(self._file(repository, digest).read_text().split())
        except FileNotFoundError:
            return ()

    def _file(self, repository: str, digest: str) -> Path:
        name = hashlib.sha256(repository.encode()).hexdigest()
        return self._root / digest.removeprefix("sha256:") / name

    def _mark(self, login: Mapping[str, bytes]) -> str:
        found = hmac.new(self._key(), digestmod=hashlib.sha256)
        for name, value in sorted(login.items()):
            for part in (name.encode(), value):
                found.update(len(part).to_bytes(8, "big") + part)
        return found.hexdigest()

    def _key(self) -> bytes:
        """Made once: a digest of a weak password must be worth nothing without it."""
        path = self._root / _KEY_FILE
        try:
            make_directory(self._root, mode=0o700)
            if not path.exists():
                partial = self._root / f".{_KEY_FILE}.{secrets.token_hex(8)}"
                write_atomic(partial, secrets.token_bytes(_KEY_BYTES), mode=0o600)
                with contextlib.suppress(FileExistsError):  # another thread was first
                    os.link(partial, path)
                partial.unlink()
            return path.read_bytes()
        except OSError as error:
            raise StorageError("", f"{path}: {error.strerror}") from error


def _folders(root: Path) -> list[Path]:
    try:
        return [child for child in root.iterdir() if child.is_dir()]
    except FileNotFoundError:
        return []
