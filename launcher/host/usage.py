# SPDX-License-Identifier: Apache-2.0
"""What the host has and uses at the moment: CPU time, memory, swap. Reads only; every call looks anew."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import psutil

from launcher.errors import HostUnsupported

PACKAGES = Path("/sys/devices/system/cpu")


@dataclass(frozen=True, slots=True, kw_only=True)
class HostUsage:
    """Sizes in bytes. ``cpu_time_s`` is user, nice and system time of all CPUs together since boot.

    ``used_memory`` leaves out what is free at once: buffers and caches. ``swapped_in`` and ``swapped_out``
    are sums since boot.
    """

    sockets: int
    cpu_time_s: float
    free_memory: int
    used_memory: int
    free_swap: int
    used_swap: int
    swapped_in: int
    swapped_out: int


def look() -> HostUsage:
    """What is used now.

    Raises:
        HostUnsupported: /proc or /sys do not tell.
    """
    try:
        times, memory, swap = psutil.cpu_times(), psutil.virtual_memory(), psutil.swap_memory()
        return HostUsage(
            sockets=_sockets(PACKAGES),
            cpu_time_s=times.user + times.nice + times.system,
            free_memory=memory.free,
            used_memory=max(0, memory.total - memory.free - memory.buffers - memory.cached),
            free_swap=swap.free,
            used_swap=swap.used,
            swapped_in=swap.sin,
            swapped_out=swap.sout,
        )
    except (OSError, ValueError) as error:
        raise HostUnsupported("host statistics", f"/proc cannot be read: {error}") from error


def _sockets(root: Path) -> int:
    """CPU packages; 1 where the kernel does not tell."""
    packages = {path.read_text().strip() for path in root.glob("cpu[0-9]*/topology/physical_package_id")}
    return len(packages) or 1
