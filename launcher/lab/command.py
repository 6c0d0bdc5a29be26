# SPDX-License-Identifier: Apache-2.0
"""Runs one program to its end, for the playground. It must not start services (see ``service.py``)."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from launcher.errors import CommandFailed, HostUnsupported, TimedOut


def run(
    argv: Sequence[str | Path],
    *,
    timeout_s: float = 60.0,
    stdin: bytes = b"",
    cwd: Path | None = None,
) -> bytes:
    """Run ``argv`` and return what it wrote to stdout.

    Raises:
        CommandFailed: it ended with another status than 0.
        TimedOut: it was still running after ``timeout_s`` seconds and was killed.
        HostUnsupported: there is no such program.
    """
    words = [str(word) for word in argv]
    try:
        done = subprocess.run(
            words, input=stdin, capture_output=True, timeout=timeout_s, cwd=cwd, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise TimedOut(f"{words[0]} ran longer than {timeout_s:g} s", hint=" ".join(words)) from error
    except FileNotFoundError as error:
        raise HostUnsupported(
            f"the program {words[0]}", "it is not on PATH", hint="run `make deps`"
        ) from error
    if done.returncode != 0:
        last_words = (done.stderr or done.stdout).decode(errors="replace")
        raise CommandFailed(words, done.returncode, last_words, hint=" ".join(words)[:300])
    return done.stdout
