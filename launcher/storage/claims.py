# SPDX-License-Identifier: Apache-2.0
"""Files and devices that the user brought: are they what the manifest says? Blocking; changes nothing."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from launcher.errors import StorageError
from launcher.plan.steps import RequireFile
from launcher.storage.problems import told
from launcher.units import human_bytes


def require_file(step: RequireFile) -> None:
    """Check that the file or block device of ``step`` is there, opens, and is large enough.

    Raises:
        StorageError: with the volume and what is wrong: missing, of another kind, not permitted, too small.
    """
    path = Path(step.path)
    try:
        if not step.link and path.is_symlink():
            message = f"{path} is a link; in the directory of a claim it must be the file itself"
            raise StorageError(step.volume, message, problem="VolumeInvalid")
        mode = path.stat().st_mode
        if step.block and not stat.S_ISBLK(mode):
            raise StorageError(step.volume, f"{path} is not a block device", problem="VolumeInvalid")
        if not step.block and not stat.S_ISREG(mode):
            raise StorageError(step.volume, f"{path} is not a regular file", problem="VolumeInvalid")
        size = _size(path)
    except OSError as error:
        raise told(step.volume, path, error) from error
    if size == 0:
        raise StorageError(step.volume, f"{path} is empty", problem="VolumeTooSmall")
    if size < step.min_size:
        raise StorageError(
            step.volume,
            f"{path} has {human_bytes(size)}, and the claim says {human_bytes(step.min_size)}",
            hint="hand in the capacity that the device has",
            problem="VolumeTooSmall",
        )


def _size(path: Path) -> int:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        return os.lseek(descriptor, 0, os.SEEK_END)  # of a device, too
    finally:
        os.close(descriptor)
