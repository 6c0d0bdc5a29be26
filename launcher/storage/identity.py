# SPDX-License-Identifier: Apache-2.0
"""Which file or device a path leads to, whatever it is called. Blocking; opens nothing."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path


def identities(paths: Iterable[str]) -> dict[str, str]:
    """For each path what it leads to: the same text for the same file or device, through links of any kind.

    What is not there yet is named by where it would be.
    """
    return {path: _identity(path) for path in paths}


def _identity(path: str) -> str:
    try:
        seen = Path(path).stat()
    except OSError:
        return os.path.realpath(path)
    if stat.S_ISBLK(seen.st_mode):
        return f"device {os.major(seen.st_rdev)}:{os.minor(seen.st_rdev)}"
    return f"file {seen.st_dev}:{seen.st_ino}"
