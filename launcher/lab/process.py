# SPDX-License-Identifier: Apache-2.0
"""Names a process so that a reused pid is never mistaken for it. Reads /proc, signals only what matches."""

from __future__ import annotations

import os
import time
from pathlib import Path

import msgspec

from launcher.errors import Bug

POLL_S = 0.02


def _stat(pid: int) -> tuple[str, int] | None:
    """State letter and start time in clock ticks (fields 3 and 22 of /proc/PID/stat, see proc(5))."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = text[text.rindex(")") + 2 :].split()
    return fields[0], int(fields[19])


class ProcessId(msgspec.Struct, frozen=True, kw_only=True):
    """A process: its pid as this process sees it, and its start time in clock ticks since boot."""

    pid: int
    started: int

    @classmethod
    def of(cls, pid: int) -> ProcessId | None:
        """The process that has ``pid`` now; None when there is none (a zombie counts as none)."""
        found = _stat(pid)
        if found is None or found[0] in "ZX":
            return None
        return cls(pid=pid, started=found[1])

    @classmethod
    def own(cls) -> ProcessId:
        """This process."""
        found = cls.of(os.getpid())
        if found is None:
            raise Bug("/proc does not know this process")
        return found

    def alive(self) -> bool:
        """Whether this very process still runs."""
        return ProcessId.of(self.pid) == self

    def signal(self, number: int) -> bool:
        """Send a signal; False when the process is gone already."""
        if not self.alive():
            return False
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            return False
        return True

    def wait_gone(self, timeout_s: float) -> bool:
        """Wait until it is gone; False when it still runs after ``timeout_s`` seconds."""
        deadline = time.monotonic() + timeout_s
        while self.alive():
            if time.monotonic() >= deadline:
                return False
            time.sleep(POLL_S)
        return True


def first_child(pid: int, *, timeout_s: float = 5.0) -> ProcessId | None:
    """The first child of ``pid``, waiting for it to appear; None when ``pid`` ends or time is over."""
    deadline = time.monotonic() + timeout_s
    while ProcessId.of(pid) is not None and time.monotonic() < deadline:
        for child in _children(pid):
            found = ProcessId.of(child)
            if found is not None:
                return found
        time.sleep(POLL_S)
    return None


def _children(pid: int) -> list[int]:
    try:
        listed = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except OSError:
        return []
    return [int(word) for word in listed.split()]
