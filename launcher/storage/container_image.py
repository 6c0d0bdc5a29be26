# SPDX-License-Identifier: Apache-2.0
"""Disks and kernels out of container images: resolve, pull, check, take the file out, hand it on.

An image is known by its digest. Whatever asks for one at the same time waits for one pull.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from launcher.errors import StorageError
from launcher.plan.media.material import Material
from launcher.plan.steps import FetchContainerDisk, FetchKernel
from launcher.storage.access import Access
from launcher.storage.cache import ImageCache, file_key
from launcher.storage.images import inspect_image
from launcher.storage.limits import ROOM_BYTES, StorageSettings
from launcher.storage.oci import archive, layout
from launcher.storage.oci.reference import ImageReference, parse_reference
from launcher.storage.registry import TAG, Registry
from launcher.units import GIB

DISK_FOLDER = "disk"
"""Where a containerDisk image keeps its disk file, by KubeVirt's convention."""
MAX_KERNEL_BYTES = GIB
KERNEL_BOOT = "kernelBoot"
"""What errors about a kernel's image call it; it is no volume."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """A file of the image (``name`` None: the one in /disk), where it goes, and how large it may be."""

    name: str | None
    target: Path
    limit: int
    disk: bool = False

    @property
    def key(self) -> str:
        return file_key(self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    """One image for one user, who is called ``volume`` in errors."""

    volume: str
    image: str
    reference: ImageReference
    policy: str
    pinned: str
    login: Mapping[str, bytes] | None

    @property
    def remote(self) -> bool:
        return self.reference.transport == "docker"


class ContainerImages:
    """Images through the cache of the node."""

    def __init__(self, settings: StorageSettings) -> None:
        self._settings = settings
        self._cache = ImageCache(settings.images, settings.pulls, limit=settings.cache_limit)
        self._access = Access(settings.access)
        self._registry = Registry(settings)
        self._locks: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()

    async def fetch_disk(self, step: FetchContainerDisk, material: Material) -> FetchContainerDisk:
        """Expose the disk file of an image at ``step.path``; returns the step with the image's digest.

        Raises:
            StorageError: no such image or file, no access, more than one candidate, or a disk that names
                other files or is too large.
            HostUnsupported: an image in a registry, and there is no skopeo.
            InvalidRequest: the pull Secret did not come with the instance.
        """
        wanted = _Wanted(name=step.disk, target=Path(step.path), limit=self._settings.max_image, disk=True)
        digest = await self._fetch(_request(step, step.volume, material), (wanted,))
        return replace(step, digest=digest)

    async def fetch_kernel(self, step: FetchKernel, material: Material) -> FetchKernel:
        """Expose kernel and initrd of an image at the paths of ``step``; otherwise as ``fetch_disk``."""
        pairs = ((step.kernel, step.kernel_path), (step.initrd, step.initrd_path))
        wanted = tuple(
            _Wanted(name=name, target=Path(path), limit=MAX_KERNEL_BYTES)
            for name, path in pairs
            if name and path
        )
        digest = await self._fetch(_request(step, KERNEL_BOOT, material), wanted)
        return replace(step, digest=digest)

    async def sweep(self) -> None:
        """Remove what killed pulls left, and what is over the cache's limit and nobody uses."""
        await self._registry.sweep()
        await asyncio.to_thread(self._sweep)

    async def trim(self) -> None:
        """Somebody has given an image back: keep to the limit, if there is one."""
        if self._settings.cache_limit:
            await self.sweep()

    def _sweep(self) -> None:
        self._cache.sweep()
        self._access.keep(self._cache.digests())

    async def _fetch(self, request: _Request, wanted: tuple[_Wanted, ...]) -> str:
        try:
            present = await asyncio.to_thread(self._present, wanted)
            if present:
                return present
            digest, shown = await self._resolve(request, wanted)
            async with self._lock(digest):
                with self._cache.holding(digest):
                    pulled = await self._fill(request, digest, wanted, shown=shown)
            if pulled:
                await self.sweep()
        except StorageError as error:
            if error.volume:
                raise
            raise StorageError(request.volume, error.message, hint=error.hint) from error
        return digest

    def _present(self, wanted: tuple[_Wanted, ...]) -> str | None:
        """The digest of the image whose files are in their places already: the step is made again."""
        if not all(file.target.exists() for file in wanted):
            return None
        return next((self._cache.digest_of(file.target) for file in wanted), None)

    async def _resolve(self, request: _Request, wanted: tuple[_Wanted, ...]) -> tuple[str, bool]:
        """The image's digest, and whether its registry has just shown it to this user."""
        pinned = request.pinned or request.reference.digest
        if pinned:
            return pinned, False
        async with self._lock(request.image):
            if not request.remote:
                return await asyncio.to_thread(self._local_digest, request), False
            known = await asyncio.to_thread(self._cache.recall, request.image)
            there = known is not None and all(self._cache.has(known, file.key) for file in wanted)
            if known is not None and there and request.policy != "Always":
                return known, False
            if request.policy == "Never":
                raise _absent(request)
            digest = await self._registry.digest(request.volume, request.reference, request.login)
            await asyncio.to_thread(self._cache.remember, request.image, digest)
            return digest, True

    async def _fill(
        self, request: _Request, digest: str, wanted: tuple[_Wanted, ...], *, shown: bool
    ) -> bool:
        """Bring what is not in the cache into it, and hand all of it out; returns whether it grew."""
        missing = [file for file in wanted if not self._cache.has(digest, file.key)]
        if missing:
            if request.policy == "Never" and request.remote:
                raise _absent(request)
            with self._cache.pulling(digest) as folder:
                image = await self._obtain(request, digest, folder)
                try:
                    for file in missing:
                        await self._take_out(request, digest, image, file)
                except asyncio.CancelledError:
                    image.stop.set()  # a thread cannot be cancelled
                    raise
        if request.remote:
            await self._authorise(request, digest, shown=shown or bool(missing))
        for file in wanted:
            if not await asyncio.to_thread(self._cache.link, digest, file.key, file.target):
                raise StorageError("", f"{request.image} was removed from the cache meanwhile")
        return bool(missing)

    async def _authorise(self, request: _Request, digest: str, *, shown: bool) -> None:
        """What is in the cache is for those to whom its registry shows it, or has shown it before."""
        repository, login = request.reference.location, request.login
        if not shown:
            if await asyncio.to_thread(self._access.granted, repository, digest, login):
                return
            if request.policy == "Never":
                raise _withheld(request)
            await self._registry.digest(request.volume, request.reference, login, pinned=digest)
        await asyncio.to_thread(self._access.grant, repository, digest, login)

    async def _obtain(self, request: _Request, digest: str, folder: Path) -> layout.Image:
        limit = self._settings.max_image + ROOM_BYTES
        reference = request.reference
        match reference.transport:
            case "docker":
                await self._registry.pull(request.volume, reference, digest, folder, request.login)
                return await asyncio.to_thread(layout.open_image, folder, TAG, limit=limit)
            case "oci-archive":
                await asyncio.to_thread(archive.unpack, Path(reference.location), folder, limit=limit)
                root = folder
            case _:
                root = Path(reference.location)
        return await asyncio.to_thread(layout.open_image, root, reference.tag, limit=limit, digest=digest)

    async def _take_out(self, request: _Request, digest: str, image: layout.Image, file: _Wanted) -> None:
        with self._cache.filling(digest, file.key) as partial:
            name = file.name
            if name is None:
                name = await asyncio.to_thread(_only_disk, request.image, image)
            await asyncio.to_thread(layout.extract, image, name, partial, limit=file.limit)
            if file.disk:
                most = self._settings.max_virtual_size
                await inspect_image(request.volume, partial, max_virtual_size=most)

    def _local_digest(self, request: _Request) -> str:
        reference, limit = request.reference, self._settings.max_image
        path = Path(reference.location)
        if reference.transport == "oci":
            return layout.open_image(path, reference.tag, limit=limit).digest
        stamp = archive.stamp(path)
        known = self._cache.recall(f"{request.image} {stamp}")
        if known is None:
            known = archive.digest(path, reference.tag, limit=limit)
            self._cache.remember(f"{request.image} {stamp}", known)
        return known

    def _lock(self, name: str) -> asyncio.Lock:
        lock = self._locks.get(name)
        if lock is None:
            lock = self._locks[name] = asyncio.Lock()
        return lock


def _request(step: FetchContainerDisk | FetchKernel, volume: str, material: Material) -> _Request:
    try:
        reference = parse_reference(step.image)
    except ValueError as error:
        raise StorageError(volume, str(error)) from error
    login = None
    if step.pull_secret is not None:
        login = material.secret(step.pull_secret, field=f"imagePullSecret of {volume!r}")
    return _Request(
        volume=volume,
        image=step.image,
        reference=reference,
        policy=step.pull_policy,
        pinned=step.digest or "",
        login=login,
    )


def _only_disk(name: str, image: layout.Image) -> str:
    files = layout.list_files(image, DISK_FOLDER)
    if len(files) != 1:
        found = ", ".join(f"/{f}" for f in files[:10]) or "none"
        raise StorageError("", f"{name}: expected one file in /{DISK_FOLDER}, found {found}")
    return files[0]


def _withheld(request: _Request) -> StorageError:
    return StorageError(
        request.volume,
        f"{request.image} is on this node for others, and imagePullPolicy Never forbids to ask its registry",
        hint="use another policy, or the imagePullSecret with which it was pulled",
    )


def _absent(request: _Request) -> StorageError:
    return StorageError(
        request.volume,
        f"{request.image} is not on this node, and imagePullPolicy is Never",
        hint="pull it by an instance with another policy first",
    )
