# SPDX-License-Identifier: Apache-2.0
"""systemd's notification protocol (sd_notify(3)): ready, status, stopping, watchdog. Decides nothing.

Without ``NOTIFY_SOCKET`` every call is silent, so that the agent runs the same outside of systemd.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

SEND_TIMEOUT_S: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Notifier:
    """``address`` is the service manager's socket (``@`` begins an abstract one), empty for none."""

    address: str = ""
    watchdog_usec: int = 0

    @property
    def watchdog_interval_s(self) -> float | None:
        """How often to call ``watchdog``: half of what systemd waits; None if it does not watch us."""
        return self.watchdog_usec / 2_000_000 if self.watchdog_usec else None

    def ready(self, status: str = "") -> bool:
        """Start-up is finished."""
        return self._send("READY=1", *([f"STATUS={_line(status)}"] if status else []))

    def status(self, text: str) -> bool:
        """One line for people, shown by ``systemctl status``."""
        return self._send(f"STATUS={_line(text)}")

    def reloading(self) -> bool:
        """A reload began; ``ready`` ends it."""
        return self._send("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self, status: str = "") -> bool:
        """Shutdown began."""
        return self._send("STOPPING=1", *([f"STATUS={_line(status)}"] if status else []))

    def watchdog(self) -> bool:
        """Still alive."""
        return self._send("WATCHDOG=1")

    def extend_timeout(self, seconds: float) -> bool:
        """Starting or stopping takes ``seconds`` more."""
        return self._send(f"EXTEND_TIMEOUT_USEC={int(seconds * 1_000_000)}")

    def _send(self, *assignments: str) -> bool:
        """Send; False if nobody listens or the message could not be delivered, which is not our error."""
        if not self.address:
            return False
        address = "\0" + self.address[1:] if self.address.startswith("@") else self.address
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
            sock.settimeout(SEND_TIMEOUT_S)
            try:
                sock.sendto("\n".join(assignments).encode(), address)
            except OSError:
                return False
        return True


def notifier(environ: Mapping[str, str], *, pid: int | None = None) -> Notifier:
    """The notifier that ``environ`` (NOTIFY_SOCKET, WATCHDOG_USEC, WATCHDOG_PID) asks for.

    A watchdog meant for another process than ``pid`` (by default ours) is not ours to feed.
    """
    address = environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return Notifier()
    usec, owner = environ.get("WATCHDOG_USEC", ""), environ.get("WATCHDOG_PID", "")
    ours = not owner or owner == str(os.getpid() if pid is None else pid)
    return Notifier(address=address, watchdog_usec=int(usec) if ours and usec.isdecimal() else 0)


def _line(text: str) -> str:
    """A newline would begin another assignment."""
    return " ".join(text.split())
