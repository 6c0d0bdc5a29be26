# SPDX-License-Identifier: Apache-2.0
"""Creates namespaces, holds them open, and runs programs inside. It knows neither libvirt nor agents."""

from __future__ import annotations

import select
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from launcher.errors import HostUnsupported
from launcher.lab import command, holder
from launcher.lab.process import first_child

START_TIMEOUT_S = 15.0
STOP_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class Namespaces:
    """The mount, uts, net and pid namespaces of the process ``pid``, to be entered by nsenter(1)."""

    pid: int

    def prefix(self) -> list[str]:
        """The words to put before a command so that it runs inside."""
        return ["nsenter", "-t", str(self.pid), "-m", "-u", "-n", "-p", "--"]

    def run(self, *argv: str | Path, timeout_s: float = 60.0) -> bytes:
        """Run a program inside; see ``command.run`` for the errors."""
        return command.run([*self.prefix(), *argv], timeout_s=timeout_s)

    def run_net(self, *argv: str | Path) -> bytes:
        """Run a program in the net namespace only: it sees the machine's own files and pids."""
        return command.run(["nsenter", f"--net=/proc/{self.pid}/ns/net", "--", *argv])


class Holder:
    """New namespaces that live as long as this object, or as this process if it is killed."""

    def __init__(self) -> None:
        flags = ["--net", "--pid", "--mount", "--uts", "--fork", "--kill-child=SIGKILL", "--mount-proc"]
        program = [sys.executable, "-I", "-S", str(Path(holder.__file__))]
        self._process = subprocess.Popen(
            ["unshare", *flags, "--propagation", "private", *program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        found = first_child(self._process.pid, timeout_s=START_TIMEOUT_S) if self._ready() else None
        if found is None:
            reason = self._end()
            raise HostUnsupported(
                "namespaces",
                f"unshare failed: {reason or 'no answer'}",
                hint="the playground needs root with CAP_SYS_ADMIN; in a container, run it privileged",
            )
        self.process_id = found
        self.namespaces = Namespaces(found.pid)

    def _ready(self) -> bool:
        stdout = self._process.stdout
        if stdout is None or not select.select([stdout], [], [], START_TIMEOUT_S)[0]:
            return False
        return stdout.readline() == b"ready\n"

    def _end(self) -> str:
        """Let the namespaces go; returns the last words of unshare(1)."""
        process, words = self._process, b""
        if process.stdin is not None:
            process.stdin.close()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()  # unshare's child dies with it: --kill-child
            process.wait(STOP_TIMEOUT_S)
        for stream in (process.stderr, process.stdout):
            if stream is not None and not stream.closed:
                words = words or stream.read()
                stream.close()
        return words.decode(errors="replace").strip()

    def close(self) -> None:
        """End every process inside. Closing twice is fine."""
        self._end()
        # unshare(1) has gone; its child cannot outlive it, but its exit may take a moment to complete.
        if not self.process_id.wait_gone(STOP_TIMEOUT_S):
            self.process_id.signal(signal.SIGKILL)


def shell_script(lines: Sequence[str]) -> list[str]:
    """A command that runs ``lines`` in a shell and stops at the first that fails."""
    return ["sh", "-ec", "\n".join(lines)]
