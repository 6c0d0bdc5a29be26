# SPDX-License-Identifier: Apache-2.0
"""The qcow2 file before a raw image that remembers which of its blocks change. Never writes to that image.

``qemu-img create`` with a data file makes that file anew, empty. So it is given a file of ours, and the name
of the user's image is put in its place afterwards.
"""

from __future__ import annotations

import asyncio
import os
import stat
from pathlib import Path
from typing import Final

from launcher.errors import CommandFailed, StorageError, TimedOut
from launcher.host.run import run
from launcher.plan.steps import TrackChanges
from launcher.storage.capacity import virtual_size

CLUSTER: Final = 256 * 1024
"""As KubeVirt has it: the bitmaps of 1 TiB take 512 KiB then."""
_TIMEOUT_S: Final = 60.0
_SECTOR: Final = 512


async def track_changes(step: TrackChanges) -> None:
    """Make the file unless it is there and fits its image.

    Raises:
        StorageError: the image cannot be tracked, or there is no room.
    """
    path, data = Path(step.path), Path(step.data_path)
    size = await asyncio.to_thread(_size, step, data)
    if await asyncio.to_thread(_fits, path, size):
        return
    whole, scratch = parts(step)
    options = f"data_file={_escaped(scratch)},data_file_raw=on,cluster_size={CLUSTER}"
    try:
        for part in (whole, scratch, path):
            part.unlink(missing_ok=True)
        create = ["qemu-img", "create", "-q", "-f", "qcow2", "-o", options, str(whole), str(size)]
        await run(create, timeout_s=_TIMEOUT_S)
        amend = ["qemu-img", "amend", "-q", "-f", "qcow2", "-o", f"data_file={_escaped(data)}", str(whole)]
        await run(amend, timeout_s=_TIMEOUT_S)
        os.replace(whole, path)  # noqa: PTH105 - atomic by intent
    except (CommandFailed, TimedOut) as error:
        raise StorageError(step.volume, f"cannot track changes of {data}: {error.message}") from error
    except OSError as error:
        raise StorageError(step.volume, f"cannot track changes of {data}: {error.strerror}") from error
    finally:
        for part in (whole, scratch):
            part.unlink(missing_ok=True)


def parts(step: TrackChanges) -> tuple[Path, Path]:
    """What a killed agent may leave: the file under way, and the empty stand-in of its image."""
    path = Path(step.path)
    return path.with_name(f".{path.name}.partial"), path.with_name(f".{path.name}.stand-in")


def _size(step: TrackChanges, data: Path) -> int:
    size = virtual_size(data, qcow2=False)
    if size % _SECTOR:
        raise StorageError(
            step.volume, f"{data} ends within a sector: its changes cannot be tracked", hint="make it larger"
        )
    seen = data.stat()
    if step.uid is not None and seen.st_uid != step.uid and not seen.st_mode & stat.S_IWOTH:
        raise StorageError(
            step.volume,
            f"QEMU (uid {step.uid}) may not write {data}, and this libvirt does not hand it over",
            hint=f"chown {step.uid} it, or use libvirt 10.10",
        )
    return size


def _fits(path: Path, size: int) -> bool:
    try:
        return path.is_file() and virtual_size(path, qcow2=True) == size
    except StorageError:
        return False


def _escaped(path: Path) -> str:
    """As qemu-img reads a value in a list of options."""
    return str(path).replace(",", ",,")
