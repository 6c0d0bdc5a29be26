# SPDX-License-Identifier: Apache-2.0
"""Which processes of this host write which files, by what proc(5) shows of them. Reads only; blocking.

Another host's processes cannot be seen: of a disk on shared storage this tells who else has it *here*.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

_PROC = Path("/proc")


def writers(paths: Iterable[str]) -> dict[str, str]:
    """Path -> ``NAME (PID)`` of a process that has it open for writing, by whatever name of the file.

    Processes that end meanwhile, or that may not be looked at, are left out, too.
    """
    wanted: dict[tuple[int, int], str] = {}
    for path in paths:
        try:
            found = os.stat(path)  # noqa: PTH116 - follows links, as opening does
        except OSError:
            continue
        wanted[found.st_dev, found.st_ino] = path
    writing: dict[str, str] = {}
    for process in _PROC.iterdir() if wanted else ():
        if process.name.isdigit() and int(process.name) != os.getpid():
            for path in _written(process, wanted):
                writing.setdefault(path, f"{_name(process)} ({process.name})")
    return writing


def _written(process: Path, wanted: dict[tuple[int, int], str]) -> set[str]:
    found = set()
    try:
        for descriptor in (process / "fd").iterdir():
            status = descriptor.stat()
            path = wanted.get((status.st_dev, status.st_ino))
            if path is not None and _for_writing(process / "fdinfo" / descriptor.name):
                found.add(path)
    except OSError:
        return found
    return found


def _for_writing(information: Path) -> bool:
    """``flags`` are octal, as in open(2)."""
    flags = next(line for line in information.read_text().splitlines() if line.startswith("flags:"))
    return int(flags.split()[1], 8) & os.O_ACCMODE != os.O_RDONLY


def _name(process: Path) -> str:
    try:
        return (process / "comm").read_text().strip()
    except OSError:
        return "a process"
