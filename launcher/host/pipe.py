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


@contextmanager
def output_of(argv: Sequence[str], source: IO[bytes], *, limits: Limits = NO_LIMITS) -> Iterator[IO[bytes]]:
    """What ``argv`` makes of the file ``source``, as a stream. At the end of the block it is killed.

    Raises:
        HostUnsupported: there is no such program.
        CommandFailed: it ended with another status than 0 before it was stopped.
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
        try:
            yield process.stdout
            status = process.poll()
            if status:
                raise CommandFailed(argv, status, "it gave up on its input")
        finally:
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
            process.wait(END_TIMEOUT_S)
