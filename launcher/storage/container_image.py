# SPDX-License-Identifier: Apache-2.0
"""Disks and kernels out of container images, through a cache that all instances of the node share.

The cache holds one file per (image digest, path in the image), read-only; an instance gets a hard link, so
that removing its directory never touches the cache and the cache never takes a file in use.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from pathlib import Path

from launcher.errors import HostUnsupported, StorageError
from launcher.plan.steps import FetchContainerDisk, FetchKernel
from launcher.storage.images import probe_format
from launcher.storage.oci import layout
from launcher.storage.oci.reference import ImageReference, parse_reference

DISK_FOLDER = "disk"
"""Where a containerDisk image keeps its disk file, by KubeVirt's convention."""
MAX_DISK_BYTES = 1 << 44
MAX_KERNEL_BYTES = 1 << 30


class ContainerImages:
    """The cache under ``root``."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._locks: dict[str, asyncio.Lock] = {}

    async def fetch_disk(self, step: FetchContainerDisk) -> None:
        """Expose the disk file of an image at ``step.path``.

        Raises:
            StorageError: no such image or file, more than one candidate, or an image that names other files.
            HostUnsupported: an image in a registry.
        """
        async with self._lock(step.image):
            await asyncio.to_thread(self._fetch_disk, step)

    async def fetch_kernel(self, step: FetchKernel) -> None:
        """Expose kernel and initrd of an image at the paths of ``step``; raises as ``fetch_disk``."""
        async with self._lock(step.image):
            await asyncio.to_thread(self._fetch_kernel, step)

    def _lock(self, image: str) -> asyncio.Lock:
        return self._locks.setdefault(image, asyncio.Lock())

    def _fetch_disk(self, step: FetchContainerDisk) -> None:
        if Path(step.path).exists():
            return
        image = self._open(step.volume, step.image)
        name = step.disk
        if name is None:
            files = layout.list_files(image, DISK_FOLDER)
            if len(files) != 1:
                found = ", ".join(f"/{f}" for f in files) or "none"
                raise StorageError(
                    step.volume, f"{step.image}: expected one file in /{DISK_FOLDER}, found {found}"
                )
            name = files[0]
        cached = self._cached(step.volume, image, name, MAX_DISK_BYTES)
        probe_format(step.volume, cached)
        _link(cached, Path(step.path))

    def _fetch_kernel(self, step: FetchKernel) -> None:
        pairs = [(step.kernel, step.kernel_path), (step.initrd, step.initrd_path)]
        wanted = [(name, Path(path)) for name, path in pairs if name and path and not Path(path).exists()]
        if not wanted:
            return
        image = self._open("kernelBoot", step.image)
        for name, path in wanted:
            _link(self._cached("kernelBoot", image, name, MAX_KERNEL_BYTES), path)

    def _open(self, volume: str, text: str) -> layout.Image:
        try:
            reference = parse_reference(text)
        except ValueError as error:
            raise StorageError(volume, str(error)) from error
        if reference.transport != "oci":
            raise HostUnsupported(
                "container registry access",
                f"volume {volume!r} wants {text!r}",
                hint="use a local image layout: oci:/DIR[:TAG]",
            )
        return _open_layout(volume, reference)

    def _cached(self, volume: str, image: layout.Image, name: str, limit: int) -> Path:
        key = hashlib.sha256(name.encode()).hexdigest()[:16]
        path = self._root / image.digest.removeprefix("sha256:") / key
        if path.exists():
            return path
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(f".{os.getpid()}.partial")
        try:
            layout.extract(image, name, partial, limit=limit)
            partial.chmod(0o444)
            os.replace(partial, path)  # noqa: PTH105 - atomic by intent
        except StorageError as error:
            raise StorageError(volume, error.message) from error
        finally:
            partial.unlink(missing_ok=True)
        return path


def _open_layout(volume: str, reference: ImageReference) -> layout.Image:
    try:
        return layout.open_image(Path(reference.location), reference.tag)
    except StorageError as error:
        raise StorageError(volume, error.message) from error


def _link(cached: Path, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(cached, path)
    except FileExistsError:
        return
