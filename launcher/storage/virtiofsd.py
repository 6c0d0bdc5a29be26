# SPDX-License-Identifier: Apache-2.0
"""One virtiofsd for each share: started before the guest, ended after it, and untouched by the agent's death.

There are two programs of that name: QEMU's own, in C, up to QEMU 7.2, and the one in Rust since. Neither
takes a second connection, so a guest whose virtiofsd died has lost its share: that is told, not repaired.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

import psutil

from launcher.errors import CommandFailed, HostUnsupported, StorageError
from launcher.host import detached
from launcher.host.run import run
from launcher.plan.steps import AnyStep, StartVirtiofsd

SOCKET_TIMEOUT_S = 10.0
_POLL_S = 0.02
_PROBE_TIMEOUT_S = 10.0
_LOG_TAIL = 500
_LOCKS = Path("/run/virtiofsd")
"""Where the C program keeps a file for each socket, and forgets it (tools/virtiofsd/fuse_virtio.c)."""
_CAPABILITIES = "-mknod"
"""Of those that either program keeps: root in a guest could else make device nodes, by which whoever reaches
the shared directory on the node could open its disks. Pipes and sockets need no capability."""


class Virtiofsd:
    """The daemons that this process knows; those of an earlier agent are found by their sockets."""

    def __init__(self) -> None:
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._known: dict[str, psutil.Process] = {}

    async def start(self, step: StartVirtiofsd) -> None:
        """Serve the directory, unless that is done already; returns when the guest can connect.

        Raises:
            StorageError: no such directory, or the daemon ended at once.
            HostUnsupported: this virtiofsd cannot share read-only.
        """
        argv = await _command(step)
        await asyncio.to_thread(self._start, step, argv)

    async def stop(self, step: StartVirtiofsd) -> None:
        """End the daemon, if it has not ended with the guest."""
        await asyncio.to_thread(self._stop, step)

    def faults(self, steps: Iterable[AnyStep]) -> tuple[str, ...]:
        """What is to be said of daemons that have died. Blocking."""
        return tuple(
            f"volume {step.volume!r}: its virtiofsd has ended, and the guest has lost the share until it "
            f"starts anew{_last_words(step)}"
            for step in steps
            if isinstance(step, StartVirtiofsd) and self._find(step) is None
        )

    def _start(self, step: StartVirtiofsd, argv: tuple[str, ...]) -> None:
        if not Path(step.directory).is_dir():
            raise StorageError(step.volume, f"{step.directory} is not a directory")
        socket = Path(step.socket)
        if self._find(step) is not None and socket.exists():
            return
        self._stop(step)
        try:
            child = detached.start(argv, log=Path(step.log))
        except CommandFailed as error:
            raise StorageError(step.volume, error.message) from error
        self._children[step.socket] = child
        deadline = time.monotonic() + SOCKET_TIMEOUT_S
        while not socket.exists():
            if child.poll() is not None or time.monotonic() > deadline:
                self._stop(step)
                raise StorageError(step.volume, f"virtiofsd did not start{_last_words(step)}")
            time.sleep(_POLL_S)
        if step.uid is not None or step.gid is not None:
            os.chown(socket, -1 if step.uid is None else step.uid, -1 if step.gid is None else step.gid)

    def _stop(self, step: StartVirtiofsd) -> None:
        process = self._find(step)
        if process is not None:
            detached.end(process)
        child = self._children.pop(step.socket, None)
        if child is not None:
            child.poll()
        self._known.pop(step.socket, None)
        for path in (Path(step.socket), _LOCKS / f"{step.socket.replace('/', '.')}.pid"):
            path.unlink(missing_ok=True)

    def _find(self, step: StartVirtiofsd) -> psutil.Process | None:
        child = self._children.get(step.socket)
        if child is not None and child.poll() is not None:
            return None
        known = self._known.get(step.socket)
        if known is not None and detached.runs(known):
            return known
        found = detached.find(_socket_option(step))
        if found is not None:
            self._known[step.socket] = found
        return found


def _socket_option(step: StartVirtiofsd) -> str:
    return f"--socket-path={step.socket}"


async def _command(step: StartVirtiofsd) -> tuple[str, ...]:
    """The command line for the program that is installed."""
    helped = await run([step.program, "--help"], timeout_s=_PROBE_TIMEOUT_S, check=False)
    modern = "--shared-dir" in helped.text
    if step.readonly and "--readonly" not in helped.text:
        raise HostUnsupported(
            "a virtiofsd that shares read-only",
            f"volume {step.volume!r} is read-only",
            hint="install virtiofsd 1.11 or newer, or use a disk",
        )
    if modern:
        options = [f"--shared-dir={step.directory}", "--sandbox=chroot", "--cache=auto"]
        options += [f"--modcaps={_CAPABILITIES}"] if "--modcaps" in helped.text else []
        return (step.program, _socket_option(step), *options, *(["--readonly"] if step.readonly else []))
    # The C program splits its options at commas, and FUSE's parser takes a backslash before one.
    source = step.directory.replace("\\", "\\\\").replace(",", "\\,")
    return (
        step.program,
        _socket_option(step),
        "-f",
        *("-o", f"source={source}"),
        *("-o", "sandbox=chroot"),
        *("-o", "cache=auto"),
        *(("-o", f"modcaps={_CAPABILITIES}") if "modcaps=" in helped.text else ()),
    )


def _last_words(step: StartVirtiofsd) -> str:
    try:
        text = Path(step.log).read_bytes()[-_LOG_TAIL:].decode(errors="replace").strip()
    except OSError:
        return ""
    return f": {text.splitlines()[-1]}" if text else ""
