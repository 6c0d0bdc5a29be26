# SPDX-License-Identifier: Apache-2.0
"""Labs that outlive the command that started them: up, down, and what runs. Each has a supervisor process."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

import msgspec

from launcher.errors import Conflict, HostUnsupported, NotFound, TimedOut, Unavailable
from launcher.lab import image, lab, state
from launcher.lab.layout import LabLayout
from launcher.lab.state import LabState
from launcher.lab.supervisor import Settings

DEFAULT_NAME = "default"
START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 20.0
POLL_S = 0.05


def base() -> Path:
    """``$LAUNCHER_LAB_DIR``, else /run/launcher-lab; each lab has a folder of its name in it."""
    return Path(os.environ.get("LAUNCHER_LAB_DIR") or "/run/launcher-lab")


def up(name: str, nodes: Sequence[str], *, kvm: bool = False) -> LabState:
    """Start the lab ``name``, or give the state of the one that runs.

    Raises:
        InvalidRequest: a node's name will not do.
        Conflict: it runs with other nodes.
        HostUnsupported: no lab can run here.
        Unavailable: it did not come up; the message says why.
    """
    lab.check_names(nodes)
    folder = base() / name
    with _locked(name):
        running = state.read(folder)
        if running is not None:
            if [node.name for node in running.nodes] != list(nodes):
                raise Conflict(
                    f"lab {name!r} runs with other nodes", hint=f"launcherctl lab down --name {name}"
                )
            return running
        reason = lab.missing()
        if reason:
            raise HostUnsupported("what the playground needs", reason, hint="run as root after `make deps`")
        _clear(folder)
        images = {"guest": str(image.guest().folder), "bootsector": str(image.bootsector().folder)}
        folder.mkdir(mode=0o700)
        settings = Settings(name=name, folder=str(folder), nodes=tuple(nodes), images=images, kvm=kvm)
        return _start(settings)


def down(name: str) -> bool:
    """End the lab ``name`` and remove its folder; False when there was none.

    Raises:
        TimedOut: a process of it would not end.
    """
    folder = base() / name
    with _locked(name):
        existed = folder.exists()
        _clear(folder)
    return existed


def find(name: str) -> LabState:
    """The state of the lab ``name``; NotFound when it does not run."""
    found = state.read(base() / name)
    if found is None:
        raise NotFound("lab", name, hint=f"launcherctl lab up --name {name} starts it")
    return found


def running() -> list[LabState]:
    """All detached labs. Folders of dead ones are removed."""
    if not base().is_dir():
        return []
    lab.sweep(base())
    found = (state.read(folder) for folder in sorted(base().iterdir()) if folder.is_dir())
    return [one for one in found if one is not None]


def _start(settings: Settings) -> LabState:
    folder = Path(settings.folder)
    with LabLayout(folder).supervisor_log.open("w+b") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "launcher.lab.supervisor", msgspec.json.encode(settings)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        with contextlib.ExitStack() as undo:  # also at Ctrl+C: a lab that nobody knows of must not stay
            undo.callback(_clear, folder)
            undo.callback(process.wait)
            undo.callback(process.kill)
            found = _wait_up(process, folder, log)
            undo.pop_all()
            return found


def _wait_up(process: subprocess.Popen[bytes], folder: Path, log: IO[bytes]) -> LabState:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        found = state.read(folder)
        if found is not None:
            process.returncode = 0  # it goes on without us: keep Popen from complaining that it still runs
            return found
        if process.poll() is not None:
            log.seek(0)
            raise Unavailable(f"the lab did not start: {log.read().decode(errors='replace').strip()}")
        time.sleep(POLL_S)
    raise TimedOut(f"the lab did not start within {START_TIMEOUT_S:g} s")


def _clear(folder: Path) -> None:
    """End the lab in ``folder``, exactly its processes, and remove the folder."""
    owner, known = lab.owner_of(folder), state.read(folder)
    if owner is not None and owner.signal(signal.SIGTERM) and not owner.wait_gone(STOP_TIMEOUT_S):
        owner.signal(signal.SIGKILL)  # its namespaces end with it
        if not owner.wait_gone(STOP_TIMEOUT_S):
            raise TimedOut(f"process {owner.pid} of the lab in {folder} does not end")
    for holder in [known.switch, *(node.holder for node in known.nodes)] if known else []:
        if not holder.wait_gone(STOP_TIMEOUT_S):
            raise TimedOut(f"process {holder.pid} of the lab in {folder} does not end")
    shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _locked(name: str) -> Iterator[None]:
    """One ``up`` or ``down`` of a lab at a time."""
    base().mkdir(mode=0o700, parents=True, exist_ok=True)
    with (base() / f".{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
