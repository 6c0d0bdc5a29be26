# SPDX-License-Identifier: Apache-2.0
"""Disk images by qemu-img: create, grow, look at. qemu-img never guesses the format of a guest's file."""

from __future__ import annotations

import asyncio
import errno
import json
import os
from pathlib import Path
from typing import Any, Literal

from launcher.errors import CommandFailed, LauncherError, StorageError, TimedOut
from launcher.host.files import sync_directory
from launcher.host.logging import get
from launcher.host.run import run
from launcher.plan.steps import CreateImage
from launcher.storage.limits import PROBE_LIMITS, PROBE_TIMEOUT_S
from launcher.storage.problems import problem, told
from launcher.units import MIB, human_bytes

log = get(__name__)

RESERVE_BYTES = 131_072
TOLERATED_PERCENT = 90
"""Of a file system that stays free, and of a claim's size that a smaller file system must offer: KubeVirt's
``minimumReservePVCBytes`` and ``lessPVCSpaceToleration``."""

# How formats begin that QEMU knows and we do not take; some name other files. No raw disk begins so.
_FOREIGN = (
    (b"KDMV", "a VMDK image"),
    (b"COWD", "a VMDK image"),
    (b"# Disk DescriptorFile", "a VMDK descriptor"),
    (b"vhdxfile", "a VHDX image"),
    (b"conectix", "a VHD image"),
    (b"QED\0", "a QED image"),
    (b"WithoutFreeSpace", "a Parallels image"),
    (b"WithouFreSpacExt", "a Parallels image"),
)
_VDI_OFFSET, _VDI_SIGNATURE = 64, b"\x7f\x10\xda\xbe"  # of QEMU's block/vdi.c, little-endian
_QCOW2_MAGIC = b"QFI\xfb"
_QCOW2_HEADER = 104
_INCOMPATIBLE_DATA_FILE = 1 << 2  # QEMU docs/interop/qcow2: incompatible feature bit 2, external data file
_CREATE_TIMEOUT_S = 60.0
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK)  # link(2): not supported there
_ONLY_SELF_CONTAINED = "only self-contained images are accepted"


def probe_format(volume: str, path: Path) -> Literal["raw", "qcow2"]:
    """Tell qcow2 from raw by the header, for an image that is nobody's but its author's.

    Raises:
        StorageError: a qcow2 header that refers to another file (backing or data file): the host would open
            whatever the image's author wrote there. Or an encrypted image.
    """
    try:
        with path.open("rb") as image:
            header = image.read(_QCOW2_HEADER)
    except OSError as error:
        raise StorageError(volume, f"{path} cannot be read: {error.strerror}") from error
    if header[:4] != _QCOW2_MAGIC:
        return "raw"
    if int.from_bytes(header[8:16], "big") != 0:
        raise StorageError(volume, f"the image names a backing file; {_ONLY_SELF_CONTAINED}")
    if int.from_bytes(header[32:36], "big") != 0:
        raise StorageError(volume, "the image is encrypted, and nobody has its key")
    version = int.from_bytes(header[4:8], "big")
    if version >= 3 and int.from_bytes(header[72:80], "big") & _INCOMPATIBLE_DATA_FILE:
        raise StorageError(volume, f"the image names an external data file; {_ONLY_SELF_CONTAINED}")
    return "qcow2"


async def inspect_image(volume: str, path: Path, *, max_virtual_size: int) -> Literal["raw", "qcow2"]:
    """The format of a stranger's image, once qemu-img has read it within limits of memory and time.

    Raises:
        StorageError: it refers to other files, describes a disk larger than ``max_virtual_size`` bytes, or
            qemu-img cannot read it.
    """
    found = await asyncio.to_thread(probe_format, volume, path)
    if found == "raw":
        await asyncio.to_thread(_refuse_foreign, volume, path)
    argv = ["qemu-img", "info", "-f", found, "--output=json", str(path)]
    try:
        done = await run(argv, timeout_s=PROBE_TIMEOUT_S, limits=PROBE_LIMITS, stdout_limit=MIB)
        seen: dict[str, Any] = json.loads(done.text)
    except (CommandFailed, TimedOut, ValueError) as error:
        raise StorageError(volume, f"qemu-img cannot read the image: {error}") from error
    specific = seen.get("format-specific") or {}
    data = specific.get("data") if isinstance(specific, dict) else None
    if seen.get("backing-filename") or (isinstance(data, dict) and data.get("data-file")):
        raise StorageError(volume, f"the image names another file; {_ONLY_SELF_CONTAINED}")
    size = seen.get("virtual-size")
    if not isinstance(size, int) or size <= 0:
        raise StorageError(volume, "the image describes a disk of no size")
    if size > max_virtual_size:
        most = human_bytes(max_virtual_size)
        raise StorageError(
            volume, f"the image describes a disk of {human_bytes(size)}; at most {most} are taken"
        )
    return found


def _refuse_foreign(volume: str, path: Path) -> None:
    """A guest could do nothing with another format as if it were raw; its author meant something else."""
    with path.open("rb") as image:
        header = image.read(_VDI_OFFSET + len(_VDI_SIGNATURE))
    kind = next((name for magic, name in _FOREIGN if header.startswith(magic)), "")
    if header[_VDI_OFFSET:] == _VDI_SIGNATURE:
        kind = "a VDI image"
    if kind:
        hint = "convert it: qemu-img convert -O qcow2"
        raise StorageError(volume, f"the file is {kind}; raw and qcow2 are accepted", hint=hint)


async def create_image(step: CreateImage) -> None:
    """Make the image unless it is there. It appears under its name only when it is whole.

    Raises:
        StorageError: no room, or qemu-img refused; the message names the volume.
    """
    path = Path(step.path)
    size = await asyncio.to_thread(_size_there, step, path)
    if size is None:
        await _create(step, path)
    elif step.grow and step.size is not None and size < step.size:
        await _grow(step, path, size)


def partial_path(step: CreateImage) -> Path:
    """What the image is called until it is whole; a killed agent may leave it, also beside a user's file."""
    path = Path(step.path)
    return path.with_name(f".{path.name}.{step.owner}.partial")


async def _create(step: CreateImage, path: Path) -> None:
    partial = partial_path(step)
    argv = ["qemu-img", "create", "-q", "-f", step.format]
    if step.preallocate:
        argv += ["-o", "preallocation=falloc"]
    if step.backing_path is not None:
        base = Path(step.backing_path)
        actual = (
            await asyncio.to_thread(probe_format, step.volume, base)
            if step.backing_format != "raw"
            else "raw"
        )
        argv += ["-b", step.backing_path, "-F", actual]
    argv.append(str(partial))
    if step.size is not None:
        argv.append(str(fitting(step, path, 0) if step.fit else step.size))
    try:
        partial.unlink(missing_ok=True)
        await run(argv, timeout_s=_CREATE_TIMEOUT_S)
        await asyncio.to_thread(_name, step, partial, path)
    except (CommandFailed, TimedOut, OSError) as error:
        raise StorageError(
            step.volume, f"cannot create {path}: {_why(error)}", problem=_problem(error)
        ) from error
    finally:
        partial.unlink(missing_ok=True)


def _name(step: CreateImage, partial: Path, path: Path) -> None:
    """Give the image its name. A user's image that appeared meanwhile stays: another node made it."""
    if not step.keep:
        os.replace(partial, path)  # noqa: PTH105 - atomic by intent
        return
    try:
        os.link(partial, path, follow_symlinks=False)
    except FileExistsError:
        log.info("the image is there by now", volume=step.volume, path=str(path))
    except OSError as error:
        if error.errno not in _NO_LINKS or os.path.lexists(path):
            raise
        os.replace(partial, path)  # noqa: PTH105 - a file system without hard links
    sync_directory(path.parent)


async def _grow(step: CreateImage, path: Path, size: int) -> None:
    target = fitting(step, path, size)
    if target <= size:
        return
    preallocation = "falloc" if step.preallocate else "off"
    argv = ["qemu-img", "resize", "-q", "-f", step.format, f"--preallocation={preallocation}"]
    try:
        await run([*argv, str(path), str(target)], timeout_s=_CREATE_TIMEOUT_S)
    except CommandFailed as error:
        if "lock" in error.stderr:
            # Somebody runs on it (a migration comes, or it is shared): it grows when it is at rest.
            log.info("an image in use is not made larger", volume=step.volume, path=str(path))
            return
        raise StorageError(
            step.volume, f"cannot make {path} larger: {_why(error)}", problem=_problem(error)
        ) from error
    except TimedOut as error:
        raise StorageError(step.volume, f"cannot make {path} larger: {_why(error)}") from error


def _size_there(step: CreateImage, path: Path) -> int | None:
    """Size of the file in bytes; None when it is to be made. A link is not followed."""
    if step.keep and not path.parent.is_dir():
        hint = "the guest gets it when it is there"
        raise StorageError(
            step.volume, f"the directory {path.parent} does not exist", hint=hint, problem="VolumeNotFound"
        )
    try:
        seen = path.lstat()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise told(step.volume, path, error) from error
    if step.keep and not path.is_file():
        raise StorageError(step.volume, f"{path} is not a regular file", problem="VolumeInvalid")
    if path.is_symlink():
        raise StorageError(step.volume, f"{path} is a link; the file itself must be named")
    if step.keep and seen.st_size == 0:
        raise StorageError(
            step.volume, f"{path} is empty", hint="remove it, and it is made", problem="VolumeTooSmall"
        )
    return seen.st_size


def fitting(step: CreateImage, path: Path, present: int) -> int:
    """``step.size``, or what the file system has when that is nearly as much; whole MiB."""
    wanted = step.size or 0
    system = os.statvfs(path.parent)
    blocks = path.stat().st_blocks * 512 if present else 0
    available = max(0, system.f_bavail * system.f_frsize - RESERVE_BYTES) + blocks
    if wanted <= available:
        return wanted
    usable = available // MIB * MIB
    if present:
        return max(present, usable)
    if wanted * TOLERATED_PERCENT // 100 > usable:
        raise StorageError(
            step.volume,
            f"{path.parent} has {human_bytes(available)} left, and {human_bytes(wanted)} are asked for",
            hint="give it more room or ask for less",
            problem="VolumeFull",
        )
    return usable


def _problem(error: Exception) -> str:
    if isinstance(error, OSError):
        return problem(error.errno)
    return "VolumeFull" if os.strerror(errno.ENOSPC) in _why(error) else ""


def _why(error: Exception) -> str:
    return error.message if isinstance(error, LauncherError) else str(error)
