# SPDX-License-Identifier: Apache-2.0
"""Daemons that outlive the agent: started in a session of their own, found again by their command lines.

A process is known by one word of its command line that nobody else has (the path of its socket), so that
nothing has to be written down, and a daemon that was started a moment before a crash is not lost. Blocking.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import psutil

from launcher.errors import CommandFailed
from launcher.host.run import CANNOT_RUN

TERMINATE_S = 5.0
"""After that long a daemon that was asked to end is killed."""
_KILL_S = 5.0


def start(argv: Sequence[str], *, log: Path) -> subprocess.Popen[bytes]:
    """Start a daemon that is not a part of us: its own session, its output in ``log``.

    Poll what is returned, now and then, or it stays a zombie while we live.

    Raises:
        CommandFailed: it cannot be run.
    """
    try:
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            return subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                cwd="/",
            )
        finally:
            os.close(output)
    except OSError as error:
        raise CommandFailed(argv, CANNOT_RUN, f"cannot be run: {error}") from error


def find(word: str) -> psutil.Process | None:
    """The running process that has ``word`` on its command line; none that has ended and waits for us."""
    for process in psutil.process_iter(["cmdline", "status"]):
        if word in (process.info["cmdline"] or ()) and process.info["status"] != psutil.STATUS_ZOMBIE:
            found: psutil.Process = process
            return found
    return None


def runs(process: psutil.Process) -> bool:
    """Whether it is still that process, and has not ended."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def end(process: psutil.Process) -> None:
    """Ask it to end, then kill it. psutil never signals another process that got the same number."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process.terminate()
        try:
            process.wait(TERMINATE_S)
        except psutil.TimeoutExpired:
            process.kill()
            with contextlib.suppress(psutil.TimeoutExpired):
                process.wait(_KILL_S)
