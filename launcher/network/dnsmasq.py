# SPDX-License-Identifier: Apache-2.0
"""One dnsmasq for each guest, in the guest's namespace: started, found again, replaced, ended.

It is no child of the agent and outlives it. What runs is recognised by the configuration that its command
line names, never by a number alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
from pathlib import Path
from typing import Final

import psutil

from launcher.errors import CommandFailed, NetworkError, StorageError
from launcher.host.files import write_atomic
from launcher.host.run import run
from launcher.network.dnsmasq_conf import conf_path, dnsmasq_conf, log_path, pid_path
from launcher.network.resolver import Resolver, node_resolver
from launcher.plan.steps import ServeAddresses

START_TIMEOUT_S: Final = 15.0
TERM_TIMEOUT_S: Final = 3.0
KILL_TIMEOUT_S: Final = 5.0


async def serve(step: ServeAddresses) -> int:
    """Let a server with the configuration of ``step`` run; returns its process id.

    Raises:
        NetworkError: dnsmasq refuses, in its words. HostUnsupported: there is none.
    """
    text = dnsmasq_conf(step, await asyncio.to_thread(_resolver, step))
    running = await asyncio.to_thread(find, step)
    conf = Path(conf_path(step))
    if running is not None:
        if await asyncio.to_thread(_is, conf, text):
            return running
        await asyncio.to_thread(end, step)
    try:
        await asyncio.to_thread(write_atomic, conf, text.encode(), mode=0o644)
        # dnsmasq returns when its sockets are bound; the server itself has no terminal and no parent.
        command = ["nsenter", f"--net={step.namespace}", "--", "dnsmasq", f"--conf-file={conf}"]
        await run(command, timeout_s=START_TIMEOUT_S)
    except StorageError as error:
        raise NetworkError(step.network, error.message) from error
    except CommandFailed as error:
        last = await asyncio.to_thread(_last_words, Path(log_path(step)))
        raise NetworkError(step.network, f"dnsmasq does not start: {error.stderr.strip() or last}") from error
    started = await asyncio.to_thread(find, step)
    if started is None:
        last = await asyncio.to_thread(_last_words, Path(log_path(step)))
        raise NetworkError(step.network, f"dnsmasq ended right after its start: {last}")
    return started


def find(step: ServeAddresses) -> int | None:
    """The process id of the server of ``step``. Blocking."""
    word = f"--conf-file={conf_path(step)}"
    with contextlib.suppress(OSError, ValueError):
        pid = int(Path(pid_path(step)).read_text())
        if word in _words(pid):
            return pid
    # Its file may lag behind: an agent was killed while it started.
    return next((pid for pid in psutil.pids() if word in _words(pid)), None)


def end(step: ServeAddresses) -> None:
    """End the server of ``step``. Blocking.

    Raises:
        NetworkError: it does not end.
    """
    while (pid := find(step)) is not None:
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        try:
            if not (
                _ended(descriptor, signal.SIGTERM, TERM_TIMEOUT_S)
                or _ended(descriptor, signal.SIGKILL, KILL_TIMEOUT_S)
            ):
                raise NetworkError(step.network, f"dnsmasq (process {pid}) does not end")
        finally:
            os.close(descriptor)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)  # where the agent is PID 1, orphans are its children


def _ended(descriptor: int, number: signal.Signals, timeout_s: float) -> bool:
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(descriptor, number)
    return bool(select.select([descriptor], [], [], timeout_s)[0])


def _resolver(step: ServeAddresses) -> Resolver:
    if not (step.node_nameservers or step.node_search):
        return Resolver().before(step.nameservers, step.search)
    node = node_resolver()
    first = Resolver(
        nameservers=node.nameservers if step.node_nameservers else (),
        search=node.search if step.node_search else (),
    )
    return first.before(step.nameservers, step.search)


def _words(pid: int) -> list[str]:
    try:
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return []
    return [word.decode(errors="replace") for word in raw.split(b"\0")]


def _is(path: Path, text: str) -> bool:
    try:
        return path.read_text() == text
    except OSError:
        return False


def _last_words(log: Path) -> str:
    try:
        return log.read_text(errors="replace").strip()[-300:]
    except OSError:
        return "it left no word"
