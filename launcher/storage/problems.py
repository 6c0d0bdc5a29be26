# SPDX-License-Identifier: Apache-2.0
"""What an error of the system says of a volume, in the words of ``StorageError``. Pure."""

from __future__ import annotations

import errno

from launcher.errors import StorageError

_PROBLEMS = {
    errno.ENOENT: ("VolumeNotFound", "the guest gets it when it is there"),
    errno.ENOTDIR: ("VolumeNotFound", "the guest gets it when it is there"),
    errno.ENXIO: ("VolumeNotFound", "the guest gets it when the device is there"),
    errno.ENODEV: ("VolumeNotFound", "the guest gets it when the device is there"),
    errno.EACCES: ("VolumeNotPermitted", "the guest gets it when the agent may use it"),
    errno.EPERM: ("VolumeNotPermitted", "the guest gets it when the agent may use it"),
    errno.EROFS: ("VolumeNotPermitted", "its file system is read-only"),
    errno.ENOSPC: ("VolumeFull", "make room"),
    errno.EDQUOT: ("VolumeFull", "make room"),
}


def problem(number: int | None) -> str:
    """The word for an error number; empty: there is none."""
    return _PROBLEMS.get(number or 0, ("", ""))[0]


def told(volume: str, path: object, error: OSError, *, what: str = "") -> StorageError:
    """``error`` about ``path`` as an error about the volume."""
    word, hint = _PROBLEMS.get(error.errno or 0, ("", ""))
    middle = f" {what}" if what else ""
    return StorageError(volume, f"{path}{middle}: {error.strerror}", hint=hint, problem=word)
