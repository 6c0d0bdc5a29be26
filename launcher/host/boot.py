# SPDX-License-Identifier: Apache-2.0
"""The boot clock: seconds that go on while the host sleeps, and the name of this boot."""

from __future__ import annotations

import time
from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str:
    """The kernel's random name of this boot; a new one after each reboot."""
    return _BOOT_ID.read_text().strip()


def boot_seconds() -> float:
    """Seconds since boot, suspend included; comparable between processes of one boot."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
