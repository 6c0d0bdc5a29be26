# SPDX-License-Identifier: Apache-2.0
"""Why a domain did not start, said of the volume that it is about. Pure; reads what libvirt and QEMU say."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.errors import HypervisorError, LauncherError, StorageError
from launcher.plan.devices.model import DevicesPlan, DiskPlan

# What QEMU says when another process has an image open in a way that excludes ours (block/file-posix.c): the
# path is in a hint, which is lost when a disk is plugged.
_LOCKS = ("is another process using the image", 'failed to get "', 'failed to get shared "')
_REASONS = (
    *(
        (sign, "VolumeLocked", "another process has the image open", "the guest gets it when that has ended")
        for sign in _LOCKS
    ),
    ("permission denied", "VolumeNotPermitted", "QEMU's user may not open it", "change its owner or mode"),
    ("operation not permitted", "VolumeNotPermitted", "QEMU may not open it", "change its attributes"),
    ("read-only file system", "VolumeNotPermitted", "its file system is read-only", "mount it to be written"),
    ("no such file", "VolumeNotFound", "it is not there", "the guest gets it when it is"),
    ("no space left", "VolumeFull", "its file system is full", "make room"),
)


def explained(error: HypervisorError, devices: DevicesPlan, plugged: DiskPlan | None = None) -> LauncherError:
    """``error``, or one that names the volume whose file is spelled in it.

    What is said of a file without its name is said of that of ``plugged``, the disk that is being plugged.
    """
    text = error.message
    lowered = text.lower()
    named = [(path, volume) for volume, path in _paths(devices) if path in text]
    if not named and plugged is not None and plugged.source is not None:
        named = [(plugged.source.path, plugged.name)] if any(r[0] in lowered for r in _REASONS) else []
    if not named:
        return error
    path, volume = max(named, key=lambda pair: len(pair[0]))
    for sign, problem, reason, hint in _REASONS:
        if sign in lowered:
            return StorageError(volume, f"{path}: {reason}", hint=hint, problem=problem)
    return StorageError(volume, text)


def _paths(devices: DevicesPlan) -> Iterator[tuple[str, str]]:
    for disk in devices.disks:
        if disk.source is not None:
            yield disk.name, disk.source.path
        if disk.backing is not None:
            yield disk.name, disk.backing.source.path
    for filesystem in devices.filesystems:
        yield filesystem.name, filesystem.socket
