# SPDX-License-Identifier: Apache-2.0
"""Makes and releases the storage steps of a plan. Each can be made twice and released twice."""

from __future__ import annotations

import asyncio
import os
import stat
from pathlib import Path

from launcher.errors import Bug, StorageError
from launcher.host import vhostmd
from launcher.host.files import make_directory, remove_tree
from launcher.plan.steps import (
    AnyStep,
    CreateImage,
    FetchContainerDisk,
    FetchKernel,
    MakeDirectory,
    MakeMetricsDisk,
    RequireFile,
)
from launcher.storage.container_image import ContainerImages
from launcher.storage.images import create_image

STORAGE_STEPS = (
    MakeDirectory,
    CreateImage,
    RequireFile,
    FetchContainerDisk,
    FetchKernel,
    MakeMetricsDisk,
)
NO_METRICS = b"<metrics>\n</metrics>\n"


class StorageExecutor:
    """Storage under ``state_dir`` (images of the node in ``cache``)."""

    def __init__(self, state_dir: Path) -> None:
        self._images = ContainerImages(state_dir / "cache" / "images")

    async def make(self, step: AnyStep) -> None:
        """Bring ``step`` about.

        Raises:
            StorageError, HostUnsupported: with the volume's name.
        """
        match step:
            case MakeDirectory():
                await asyncio.to_thread(_make_directory, step)
            case CreateImage():
                await create_image(step)
            case RequireFile():
                await asyncio.to_thread(_require, step)
            case FetchContainerDisk():
                await self._images.fetch_disk(step)
            case FetchKernel():
                await self._images.fetch_kernel(step)
            case MakeMetricsDisk():
                await asyncio.to_thread(vhostmd.create, step.volume, Path(step.path), NO_METRICS)
            case _:
                raise Bug(f"{type(step).__name__} is not a storage step")

    async def release(self, step: AnyStep) -> None:
        """Undo ``step``; what is already gone is fine, what belongs to the user stays."""
        match step:
            case MakeDirectory():
                await asyncio.to_thread(remove_tree, Path(step.path))
            case CreateImage(keep=False):
                await asyncio.to_thread(Path(step.path).unlink, missing_ok=True)
            case FetchContainerDisk() | MakeMetricsDisk():
                await asyncio.to_thread(Path(step.path).unlink, missing_ok=True)
            case FetchKernel():
                for path in (step.kernel_path, step.initrd_path):
                    if path:
                        await asyncio.to_thread(Path(path).unlink, missing_ok=True)
            case _:
                return


def _make_directory(step: MakeDirectory) -> None:
    path = Path(step.path)
    make_directory(path, mode=step.mode)
    if step.uid is not None or step.gid is not None:
        os.chown(path, -1 if step.uid is None else step.uid, -1 if step.gid is None else step.gid)


def _require(step: RequireFile) -> None:
    try:
        mode = Path(step.path).stat().st_mode
    except OSError as error:
        raise StorageError(step.volume, f"{step.path}: {error.strerror}") from error
    if step.block and not stat.S_ISBLK(mode):
        raise StorageError(step.volume, f"{step.path} is not a block device")
    if not step.block and not stat.S_ISREG(mode):
        raise StorageError(step.volume, f"{step.path} is not a regular file")
