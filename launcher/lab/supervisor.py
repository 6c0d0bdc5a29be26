# SPDX-License-Identifier: Apache-2.0
"""The process that owns a detached lab: ``python -m launcher.lab.supervisor SETTINGS`` (a JSON object).

It starts everything, keeps the state file true, starts a daemon again that has ended (as systemd would), and
ends with everything it owns on SIGTERM.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from pathlib import Path
from types import FrameType

import msgspec

from launcher.errors import LauncherError, TimedOut, Unavailable
from launcher.lab import state
from launcher.lab.image import Image
from launcher.lab.lab import Lab
from launcher.lab.node import Node
from launcher.lab.process import ProcessId

CHECK_EVERY_S = 0.25
RESTART_AFTER_S = 1.0
"""A daemon that has ended is started again after this time, as systemd's RestartSec=1 would."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What the supervisor is told. ``images`` maps names to folders of image layouts."""

    name: str
    folder: str
    nodes: tuple[str, ...]
    images: dict[str, str]
    kvm: bool = False


class Supervisor:
    """Watches one lab until it is told to stop."""

    def __init__(self, settings: Settings, owner: ProcessId) -> None:
        self._settings, self._owner = settings, owner
        self._stop = threading.Event()
        self._ended_at: dict[str, float] = {}

    def request_stop(self, number: int, frame: FrameType | None) -> None:
        """A signal handler."""
        self._stop.set()

    def run(self) -> None:
        """Own the lab until ``request_stop``."""
        settings = self._settings
        with Lab(Path(settings.folder), names=settings.nodes, kvm=settings.kvm) as lab:
            for name, folder in settings.images.items():
                lab.install(Image(folder=Path(folder)), name)
            lab.start_agents()
            known = state.describe(lab, settings.name, self._owner)
            state.write(known)
            while not self._stop.wait(CHECK_EVERY_S):
                for node in lab.nodes.values():
                    self._restart_ended(node)
                found = state.describe(lab, settings.name, self._owner)
                if found != known:
                    known = found
                    state.write(known)

    def _restart_ended(self, node: Node) -> None:
        daemons = (
            ("libvirtd", node.libvirtd_pid, node.start_libvirtd),
            ("launcherd", node.agent_pid, node.start_agent),
        )
        for name, pid, start in daemons:
            key = f"{node.name}/{name}"
            if pid is not None:
                self._ended_at.pop(key, None)
            elif time.monotonic() - self._ended_at.setdefault(key, time.monotonic()) >= RESTART_AFTER_S:
                self._ended_at[key] = time.monotonic()
                print(f"{key} has ended: starting it again", flush=True)
                try:
                    start()
                except (Unavailable, TimedOut) as error:
                    print(f"{key}: {error}", flush=True)


def main() -> int:
    """Run from the command line; the exit status is 1 when the lab could not start."""
    settings = msgspec.json.decode(sys.argv[1], type=Settings)
    supervisor = Supervisor(settings, ProcessId.own())
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, supervisor.request_stop)
    try:
        supervisor.run()
    except LauncherError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
