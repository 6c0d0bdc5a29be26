# SPDX-License-Identifier: Apache-2.0
"""Disk images by qemu-img: create and probe. It never lets qemu-img guess the format of a guest's file."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Literal

from launcher.errors import CommandFailed, StorageError
from launcher.host.run import run
from launcher.plan.steps import CreateImage

_QCOW2_MAGIC = b"QFI\xfb"
_QCOW2_HEADER = 104
_INCOMPATIBLE_DATA_FILE = 1 << 2  # QEMU docs/interop/qcow2: incompatible feature bit 2, external data file
_CREATE_TIMEOUT_S = 60.0


def probe_format(volume: str, path: Path) -> Literal["raw", "qcow2"]:
    """Tell qcow2 from raw by the header, for an image that is nobody's but its author's.

    Raises:
        StorageError: a qcow2 header that refers to another file (backing or data file): the host would open
            whatever the image's author wrote there.
    """
    with path.open("rb") as image:
        header = image.read(_QCOW2_HEADER)
    if header[:4] != _QCOW2_MAGIC:
        return "raw"
    if int.from_bytes(header[8:16], "big") != 0:
        raise StorageError(volume, "the image names a backing file; only self-contained images are accepted")
    version = int.from_bytes(header[4:8], "big")
    if version >= 3 and int.from_bytes(header[72:80], "big") & _INCOMPATIBLE_DATA_FILE:
        raise StorageError(
            volume, "the image names an external data file; only self-contained images are accepted"
        )
    return "qcow2"


async def create_image(step: CreateImage) -> None:
    """Make the image unless it is there. It appears under its name only when it is whole.

    Raises:
        StorageError: qemu-img refused; the message names the volume.
    """
    path = Path(step.path)
    if await asyncio.to_thread(_is_there, step, path):
        return
    partial = path.with_name(f".{path.name}.{step.owner[:8]}.partial")
    argv = ["qemu-img", "create", "-q", "-f", step.format]
    if step.backing_path is not None:
        actual = probe_format(step.volume, Path(step.backing_path)) if step.backing_format != "raw" else "raw"
        argv += ["-b", step.backing_path, "-F", actual]
    argv.append(str(partial))
    if step.size is not None:
        argv.append(str(step.size))
    partial.unlink(missing_ok=True)
    try:
        await run(argv, timeout_s=_CREATE_TIMEOUT_S)
        os.replace(partial, path)  # noqa: PTH105 - atomic by intent
    except (CommandFailed, OSError) as error:
        raise StorageError(step.volume, f"cannot create {path}: {error}") from error
    finally:
        partial.unlink(missing_ok=True)


def _is_there(step: CreateImage, path: Path) -> bool:
    if step.keep and not path.parent.is_dir():
        raise StorageError(step.volume, f"the directory {path.parent} does not exist")
    return path.exists()
