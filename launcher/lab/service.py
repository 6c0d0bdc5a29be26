# SPDX-License-Identifier: Apache-2.0
"""Starts one long-running program inside a node, waits until it answers, and stops it by a signal.

It knows neither libvirtd nor the agent: how each shows that it is ready is handed in.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from launcher.errors import Conflict, TimedOut, Unavailable
from launcher.lab.namespaces import Namespaces
from launcher.lab.process import ProcessId, first_child

POLL_S = 0.02
STOP_TIMEOUT_S = 20.0
LAST_LINES = 15
_NOT_FOR_NODES = frozenset({"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_FDS", "LISTEN_PID"})
"""What systemd told the owner of the lab about itself (sd_notify(3), sd_listen_fds(3))."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What to start: ``ready`` tells whether it answers, ``logs`` are quoted when it does not.

    ``kill_after_s`` is for a program that is known not to end at times: it is killed then, as systemd does.
    """

    name: str
    argv: Sequence[str | Path]
    output: Path
    ready: Callable[[], bool]
    ready_timeout_s: float
    logs: tuple[Path, ...]
    kill_after_s: float | None = None


class Service:
    """One program of a node. The process seen from outside is nsenter(1); its child is the program."""

    def __init__(self, namespaces: Namespaces, program: Program) -> None:
        self._namespaces = namespaces
        self._program = program
        self._entry: subprocess.Popen[bytes] | None = None
        self._process: ProcessId | None = None

    @property
    def process_id(self) -> ProcessId | None:
        """The running program, numbered as outside the node; None when it does not run."""
        return self._process if self._process is not None and self._process.alive() else None

    def launch(self) -> None:
        """Start it without waiting for an answer.

        Raises:
            Conflict: it runs already.
        """
        if self.process_id is not None:
            raise Conflict(f"{self._program.name} runs already")
        self._reap()
        with self._program.output.open("ab") as output:
            self._entry = subprocess.Popen(
                [*self._namespaces.prefix(), *map(str, self._program.argv)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                env={key: value for key, value in os.environ.items() if key not in _NOT_FOR_NODES},
            )
        self._process = first_child(self._entry.pid)

    def wait_ready(self) -> None:
        """Wait until it answers.

        Raises:
            Unavailable: it ended before that; the message quotes its log.
            TimedOut: it runs but does not answer.
        """
        program = self._program
        deadline = time.monotonic() + program.ready_timeout_s
        while not program.ready():
            if self._entry is None or self._entry.poll() is not None:
                status = "" if self._entry is None else f" with status {self._entry.returncode}"
                raise Unavailable(f"{program.name} ended{status}: {self.last_words()}")
            if time.monotonic() > deadline:
                raise TimedOut(
                    f"{program.name} did not answer within {program.ready_timeout_s:g} s: {self.last_words()}"
                )
            time.sleep(POLL_S)

    def stop(self, number: int = signal.SIGTERM) -> None:
        """Send the signal and wait until the program has ended; nothing to do when it does not run.

        Raises:
            TimedOut: it did not end in time.
        """
        process = self.process_id
        if process is not None:
            process.signal(number)
            kill_after_s = self._program.kill_after_s
            if kill_after_s is not None and not process.wait_gone(kill_after_s):
                process.signal(signal.SIGKILL)
            if not process.wait_gone(STOP_TIMEOUT_S):
                raise TimedOut(
                    f"{self._program.name} (pid {process.pid}) did not end within {STOP_TIMEOUT_S:g} s"
                )
        self._reap()

    def _reap(self) -> None:
        entry = self._entry  # Another thread may have waited for it, too.
        if entry is not None:
            deadline = time.monotonic() + STOP_TIMEOUT_S
            while entry.poll() is None and time.monotonic() < deadline:
                # nsenter stops along with its child, and then does not see that it ended.
                entry.send_signal(signal.SIGCONT)
                time.sleep(POLL_S)
            if entry.poll() is None:
                entry.kill()
                entry.wait(STOP_TIMEOUT_S)
        self._entry = self._process = None

    def last_words(self) -> str:
        """The last lines of its logs, for an error message."""
        found: list[str] = []
        for log in self._program.logs:
            if log.exists():
                found += log.read_text(errors="replace").splitlines()[-LAST_LINES:]
        return "\n".join(found) or "its log is empty"
