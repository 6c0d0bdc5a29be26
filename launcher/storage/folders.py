# SPDX-License-Identifier: Apache-2.0
"""Can a directory of the user's take files now? Blocking; looks, and writes nothing."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from launcher.errors import StorageError
from launcher.storage.problems import problem


def require_folder(volume: str, path: str, *, writes: bool) -> None:
    """Check that ``path`` is a directory, and one that may be written to.

    Raises:
        StorageError: it is not; ``problem`` says what is wrong.
    """
    try:
        mode = Path(path).stat().st_mode
    except OSError as error:
        raise StorageError(volume, f"{path}: {error.strerror}", problem=problem(error.errno)) from error
    if not stat.S_ISDIR(mode):
        raise StorageError(volume, f"{path} is not a directory", problem="VolumeInvalid")
    if writes and not os.access(path, os.W_OK | os.X_OK):  # root too may not write to what is mounted ro
        raise StorageError(volume, f"{path} may not be written to", problem="VolumeNotPermitted")
