# SPDX-License-Identifier: Apache-2.0
"""Images out of registries, by skopeo: it speaks the protocol, checks every digest and leaves an OCI layout.

skopeo dies with the agent's process; what it had written whole is used by the next attempt.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from launcher.errors import CommandFailed, HostUnsupported, StorageError, TimedOut
from launcher.host.files import make_directory
from launcher.host.run import NO_LIMITS, Limits, run
from launcher.storage.limits import ROOM_BYTES, StorageSettings
from launcher.storage.oci import size
from launcher.storage.oci.reference import ImageReference

RESOLVE_TIMEOUT_S = 60.0
PULL_TIMEOUT_S = 3500.0
TAG = "image"
"""What the one image of a pulled layout is called."""
MAX_MANIFEST = 4 << 20
"""Bytes of a manifest that registries take at most (the distribution specification)."""

_PROGRAM = "skopeo"
# The kernel ends skopeo when the agent ends, however it does.
_BOUND_TO_US = ("setpriv", "--pdeathsig", "KILL")
_FATAL = re.compile(r'level=fatal msg="((?:[^"\\]|\\.)*)"')
_DENIED = re.compile(r"unauthorized|authentication required|denied|invalid username/password", re.I)


class Registry:
    """Registries as the node reaches them."""

    def __init__(self, settings: StorageSettings) -> None:
        self._settings = settings
        self._limit = settings.max_image + ROOM_BYTES
        self._active: set[Path] = set()

    async def digest(
        self,
        volume: str,
        reference: ImageReference,
        login: Mapping[str, bytes] | None,
        *,
        pinned: str = "",
    ) -> str:
        """The digest of what the reference stands for now; with ``pinned``, that of the image so called.

        Raises:
            StorageError: the registry does not answer, does not know it or does not let us.
            HostUnsupported: there is no skopeo.
        """
        async with self._login(volume, login) as options:
            manifest = await self._manifest(volume, reference, pinned, options)
        return f"sha256:{hashlib.sha256(manifest).hexdigest()}"

    async def pull(
        self,
        volume: str,
        reference: ImageReference,
        digest: str,
        folder: Path,
        login: Mapping[str, bytes] | None,
    ) -> None:
        """Bring the image with ``digest`` into the OCI layout ``folder``; raises as ``digest``."""
        await asyncio.to_thread(_clean, folder)
        async with self._login(volume, login) as options:
            await self._require_room(volume, reference, digest, folder, options)
            options = [option.replace("--authfile", "--src-authfile") for option in options]
            tls = self._tls(reference, "--src-tls-verify")
            argv = ["copy", "--quiet", *options, *tls, reference.at(digest), f"oci:{folder}:{TAG}"]
            await self._skopeo(volume, reference, argv, PULL_TIMEOUT_S, Limits(file_size_bytes=self._limit))

    async def _require_room(
        self, volume: str, reference: ImageReference, digest: str, folder: Path, options: list[str]
    ) -> None:
        """Refuse what is too large before it is here; a registry that lies about it meets skopeo's limit."""
        manifest = await self._manifest(volume, reference, digest, options)
        name = f"{reference.location}@{digest}"
        inner = size.nested(manifest, name)
        if inner is not None:
            manifest = await self._manifest(volume, reference, inner.digest, options)
        total = size.image_bytes(manifest, name)
        await asyncio.to_thread(size.require_room, folder, total, limit=self._limit)

    async def _manifest(
        self, volume: str, reference: ImageReference, digest: str, options: list[str]
    ) -> bytes:
        argv = ["inspect", "--raw", *options, *self._tls(reference, "--tls-verify"), reference.at(digest)]
        return await self._skopeo(volume, reference, argv, RESOLVE_TIMEOUT_S)

    async def sweep(self) -> None:
        """Remove logins that a killed agent left."""
        await asyncio.to_thread(_remove_strays, self._settings.logins, frozenset(self._active))

    def _tls(self, reference: ImageReference, option: str) -> list[str]:
        return [f"{option}=false"] if reference.registry in self._settings.insecure_registries else []

    async def _skopeo(
        self,
        volume: str,
        reference: ImageReference,
        argv: list[str],
        timeout_s: float,
        limits: Limits = NO_LIMITS,
    ) -> bytes:
        if shutil.which(_PROGRAM) is None:
            raise HostUnsupported(
                "skopeo",
                f"volume {volume!r} wants {reference.location} from a registry",
                hint="install skopeo, or use a local image: oci:/DIR[:TAG]",
            )
        try:
            words = [*_BOUND_TO_US, _PROGRAM, *argv]
            done = await run(words, timeout_s=timeout_s, stdout_limit=MAX_MANIFEST, limits=limits)
        except TimedOut as error:
            raise StorageError(volume, f"{reference.registry} is too slow: {error.message}") from error
        except CommandFailed as error:
            hint = ""
            if _DENIED.search(error.stderr):
                hint = "name a Secret with the registry's login in imagePullSecret"
            message = f"cannot get {reference.location} from {reference.registry}: {_reason(error.stderr)}"
            raise StorageError(volume, message, hint=hint) from error
        return done.stdout

    @asynccontextmanager
    async def _login(self, volume: str, login: Mapping[str, bytes] | None) -> AsyncIterator[list[str]]:
        """skopeo's options for the credentials of a pull Secret, in a file for that long."""
        if login is None:
            yield []
            return
        path = self._settings.logins / f"{secrets.token_hex(8)}.json"
        self._active.add(path)
        try:
            await asyncio.to_thread(_write_login, path, _auth_file(volume, login))
            yield ["--authfile", str(path)]
        finally:
            await asyncio.to_thread(path.unlink, missing_ok=True)
            self._active.discard(path)


def _auth_file(volume: str, login: Mapping[str, bytes]) -> bytes:
    """The Secret's content as containers-auth.json(5) has it. Its old form lacks the outer object."""
    for key in (".dockerconfigjson", ".dockercfg"):
        if key not in login:
            continue
        try:
            found: Any = json.loads(login[key])
        except ValueError as error:
            raise StorageError(volume, f"{key} of the pull Secret is not JSON") from error
        if not isinstance(found, dict):
            raise StorageError(volume, f"{key} of the pull Secret is no JSON object")
        auths = found.get("auths", {}) if key == ".dockerconfigjson" else found
        return json.dumps({"auths": auths}).encode()
    raise StorageError(volume, "the pull Secret has no key .dockerconfigjson")


def _write_login(path: Path, data: bytes) -> None:
    make_directory(path.parent, mode=0o700)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)


def _remove_strays(folder: Path, active: frozenset[Path]) -> None:
    for path in folder.glob("*.json"):
        if path not in active:
            path.unlink(missing_ok=True)


def _clean(folder: Path) -> None:
    """Keep whole blobs of an earlier attempt; skopeo names unfinished ones otherwise."""
    folder.mkdir(parents=True, exist_ok=True)
    for stray in folder.glob("oci-put-blob*"):
        stray.unlink()


def _reason(stderr: str) -> str:
    """What skopeo says last, without what its log puts around it."""
    fatal = _FATAL.findall(stderr)
    if fatal:
        return str(fatal[-1].encode().decode("unicode_escape", "replace"))
    return stderr.strip().splitlines()[-1] if stderr.strip() else "skopeo gave no reason"
