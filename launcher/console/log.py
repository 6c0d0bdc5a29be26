# SPDX-License-Identifier: Apache-2.0
"""The log that QEMU keeps of a serial console. Blocking; call it in a thread."""

from __future__ import annotations

import os
from pathlib import Path


def read_tail(path: Path, limit: int) -> bytes:
    """The last ``limit`` bytes of the log; empty when there is none yet."""
    try:
        with path.open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(0, size - limit))
            return log.read(limit)
    except FileNotFoundError:
        return b""
