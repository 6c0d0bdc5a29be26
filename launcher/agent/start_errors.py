# SPDX-License-Identifier: Apache-2.0
"""Why a domain did not start, said of the volume that it is about. Pure; reads what libvirt and QEMU say."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.errors import HypervisorError, LauncherError, StorageError
from launcher.plan.model import VMPlan

# What QEMU says when another process has an image open in a way that excludes ours (block/file-posix.c).
_LOCKED = "is another process using the image"
_REASONS = (
    (_LOCKED, "another process has the image open", "the guest starts when that has ended"),
    ("permission denied", "QEMU's user may not open it", "change its owner or mode"),
    ("no such file", "it is not there", "the guest starts when it is"),
    ("no space left", "its file system is full", "make room"),
)


def explained(error: HypervisorError, plan: VMPlan) -> LauncherError:
    """``error``, or one that names the volume whose file is spelled in it."""
    text = error.message
    named = [(path, volume) for volume, path in _paths(plan) if path in text]
    if not named:
        return error
    path, volume = max(named, key=lambda pair: len(pair[0]))
    lowered = text.lower()
    for sign, reason, hint in _REASONS:
        if sign in lowered:
            return StorageError(volume, f"{path}: {reason}", hint=hint)
    return StorageError(volume, text)


def _paths(plan: VMPlan) -> Iterator[tuple[str, str]]:
    for disk in plan.devices.disks:
        if disk.source is not None:
            yield disk.name, disk.source.path
        if disk.backing is not None:
            yield disk.name, disk.backing.source.path
    for filesystem in plan.devices.filesystems:
        yield filesystem.name, filesystem.socket
