# SPDX-License-Identifier: Apache-2.0
"""A program between a file and a blocking reader, for use in a thread. It never outlives the reading."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import IO

from launcher.errors import CommandFailed, HostUnsupported
from launcher.host.run import NO_LIMITS, Limits

END_TIMEOUT_S = 5.0


class Output:
    """What a program writes. ``ended``: all of it was read."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self.ended = False

    def read(self, size: int, /) -> bytes:
        """Up to ``size`` bytes; empty at the end."""
        data = self._stream.read(size)
        self.ended = self.ended or not data
        return data


@contextmanager
def output_of(argv: Sequence[str], source: IO[bytes], *, limits: Limits = NO_LIMITS) -> Iterator[Output]:
    """What ``argv`` makes of the file ``source``, as a stream. At the end of the block it is killed.

    Raises:
        HostUnsupported: there is no such program.
        CommandFailed: all of its output was read, and its status is not 0.
    """
    if shutil.which(argv[0]) is None:
        raise HostUnsupported(f"the program {argv[0]}", "it is not on PATH", hint=f"install {argv[0]}")
    with subprocess.Popen(
        [*limits.prefix(), *argv],
        stdin=source,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None, "asked for above"
        output = Output(process.stdout)
        try:
            yield output
            status = process.wait(END_TIMEOUT_S) if output.ended else 0
            if status:
                raise CommandFailed(argv, status, "it gave up on its input")
        finally:
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
            process.wait(END_TIMEOUT_S)
