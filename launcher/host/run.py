# SPDX-License-Identifier: Apache-2.0
"""The one way to run a program: argument list, deadline, limits, the whole group killed. Never a shell.

Arguments are visible to every user of the machine and go to the debug log: pass secrets by ``stdin``.
Not for programs that leave a daemon behind: output is read until its last holder closes it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import shutil
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from launcher.errors import CommandFailed, HostUnsupported, TimedOut
from launcher.host.logging import get

log = get(__name__)

STDOUT_LIMIT: Final = 16 * 1024 * 1024
STDERR_KEPT: Final = 64 * 1024
REAP_TIMEOUT_S: Final = 5.0
"""A killed process goes at once unless the kernel holds it (dead storage); nobody waits for that."""
CANNOT_RUN: Final = 126
"""The status a shell gives for a program that cannot be executed."""
_CHUNK: Final = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """A program that ended: its status (negative: the signal) and what it wrote."""

    argv: tuple[str, ...]
    status: int
    stdout: bytes
    stderr: bytes

    @property
    def text(self) -> str:
        """Standard output as text."""
        return self.stdout.decode("utf-8", errors="replace")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Resource limits of a program and its children (setrlimit(2)); None leaves one as it is."""

    address_space_bytes: int | None = None
    cpu_s: int | None = None
    file_size_bytes: int | None = None
    open_files: int | None = None

    def prefix(self) -> tuple[str, ...]:
        """The ``prlimit`` command (util-linux) that sets them before the program begins."""
        given = (
            ("--as", self.address_space_bytes),
            ("--cpu", self.cpu_s),
            ("--fsize", self.file_size_bytes),
            ("--nofile", self.open_files),
        )
        options = [f"{name}={value}" for name, value in given if value is not None]
        return ("prlimit", *options, "--") if options else ()


NO_LIMITS: Final = Limits()


async def run(
    argv: Sequence[str | Path],
    *,
    timeout_s: float,
    stdin: bytes = b"",
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    limits: Limits = NO_LIMITS,
    stdout_limit: int = STDOUT_LIMIT,
    check: bool = True,
) -> Completed:
    """Run ``argv`` to its end. ``env`` replaces the environment; ``check`` refuses a status that is not 0.

    Of standard error the last 64 KiB are kept. The program leads a new session, and when the deadline
    passes, the output grows over ``stdout_limit`` bytes or the caller is cancelled, all of its process
    group is killed.

    Raises:
        CommandFailed: it ended with another status than 0, or wrote too much.
        TimedOut: the deadline passed.
        HostUnsupported: there is no such program.
    """
    words = tuple(str(word) for word in argv)
    process = await _spawn(words, limits, env, cwd)
    stdout, stderr = bytearray(), bytearray()
    try:
        async with asyncio.timeout(timeout_s):
            async with asyncio.TaskGroup() as group:
                group.create_task(_feed(process, stdin))
                group.create_task(_collect(process, stdout, stdout_limit))
                group.create_task(_keep_tail(process, stderr))
            status = await process.wait()
    except TimeoutError as error:
        raise TimedOut(f"{words[0]} did not end within {timeout_s:g} s: {_last_words(stderr)}") from error
    finally:
        await _end(process)
    if len(stdout) > stdout_limit:
        raise CommandFailed(words, status, f"wrote more than {stdout_limit} bytes and was killed")
    if check and status:
        raise CommandFailed(words, status, _last_words(stderr))
    return Completed(argv=words, status=status, stdout=bytes(stdout), stderr=bytes(stderr))


async def _spawn(
    words: tuple[str, ...], limits: Limits, env: Mapping[str, str] | None, cwd: Path | None
) -> asyncio.subprocess.Process:
    log.debug("run", command=shlex.join(words))
    path = (os.environ if env is None else env).get("PATH")
    if shutil.which(words[0], path=path) is None:
        raise HostUnsupported(f"the program {words[0]}", "it is not on PATH", hint=f"install {words[0]}")
    try:
        return await asyncio.create_subprocess_exec(
            *limits.prefix(),
            *words,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=env,
            cwd=cwd,
            start_new_session=True,
        )
    except OSError as error:
        raise CommandFailed(words, CANNOT_RUN, f"cannot be run: {error}") from error


async def _feed(process: asyncio.subprocess.Process, data: bytes) -> None:
    if process.stdin is None:
        return
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it does not want to read it all
        process.stdin.write(data)
        await process.stdin.drain()
    process.stdin.close()


async def _collect(process: asyncio.subprocess.Process, into: bytearray, limit: int) -> None:
    while process.stdout is not None and (chunk := await process.stdout.read(_CHUNK)):
        into += chunk
        if len(into) > limit:
            _kill_group(process)
            return


async def _keep_tail(process: asyncio.subprocess.Process, into: bytearray) -> None:
    while process.stderr is not None and (chunk := await process.stderr.read(_CHUNK)):
        into += chunk
        del into[:-STDERR_KEPT]


async def _end(process: asyncio.subprocess.Process) -> None:
    """Kill what is left of the group, and reap the program unless the kernel holds it."""
    if process.returncode is not None:
        return
    _kill_group(process)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(REAP_TIMEOUT_S):
            await process.wait()


def _kill_group(process: asyncio.subprocess.Process) -> None:
    """The group's id is the program's, which is not reaped yet, so it cannot be another's by now."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def _last_words(stderr: bytearray) -> str:
    return stderr[-500:].decode("utf-8", errors="replace").strip()
