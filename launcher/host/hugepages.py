# SPDX-License-Identifier: Apache-2.0
"""Reads the kernel's pools of huge pages, by NUMA cell. Blocking, but some ten small files of sysfs.

Source: Linux, Documentation/admin-guide/mm/hugetlbpage.rst and Documentation/ABI/stable/sysfs-devices-node.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

NODES: Final = Path("/sys/devices/system/node")
WHOLE_HOST: Final = Path("/sys/kernel/mm/hugepages")
MEMINFO: Final = Path("/proc/meminfo")
_DEFAULT: Final = re.compile(r"^Hugepagesize:\s*(\d+) kB$", re.MULTILINE)
_POOL: Final = re.compile(r"hugepages-(\d+)kB")
_NODE: Final = re.compile(r"node(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """``count`` pages of ``size`` bytes in a NUMA cell, ``free`` of them without an owner."""

    cell: int
    size: int
    count: int
    free: int


def pools(*, nodes: Path = NODES, whole_host: Path = WHOLE_HOST) -> tuple[Pool, ...]:
    """All pools, also empty ones; of a kernel without NUMA as those of cell 0."""
    found = [pool for cell, folder in _cells(nodes) for pool in _pools(cell, folder / "hugepages")]
    found = found or list(_pools(0, whole_host))
    return tuple(sorted(found, key=lambda pool: (pool.cell, pool.size)))


def default_size(meminfo: Path = MEMINFO) -> int | None:
    """Size in bytes of the huge pages that one gets who names no size."""
    try:
        found = _DEFAULT.search(meminfo.read_text())
    except OSError:
        return None
    return int(found[1]) * 1024 if found is not None else None


def _cells(nodes: Path) -> Iterator[tuple[int, Path]]:
    for folder in _entries(nodes):
        named = _NODE.fullmatch(folder.name)
        if named is not None:
            yield int(named[1]), folder


def _pools(cell: int, folder: Path) -> Iterator[Pool]:
    for pool in _entries(folder):
        named = _POOL.fullmatch(pool.name)
        if named is None:
            continue
        try:
            count, free = (int((pool / name).read_text()) for name in ("nr_hugepages", "free_hugepages"))
        except (OSError, ValueError):
            continue  # the cell went offline meanwhile
        yield Pool(cell=cell, size=int(named[1]) * 1024, count=count, free=free)


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []
