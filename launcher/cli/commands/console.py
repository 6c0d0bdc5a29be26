# SPDX-License-Identifier: Apache-2.0
"""``launcherctl console``: a terminal wired to a serial console, and restored on every way out."""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
import threading
import time
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import click

from launcher.cli.resource import vmi_arguments
from launcher.cli.session import current, namespace_option

ESCAPE = b"\x1d"
"""Ctrl+] (and Ctrl+5), as in telnet, virsh and virtctl."""

QUIET_S = 1.0
LINGER_S = 5.0
"""After the end of piped input: leave when the guest was silent so long, or did not stop talking so long."""


@click.command()
@vmi_arguments
@namespace_option
def console(name: str) -> None:
    """Connect to the serial console of the instance NAME. Ctrl+] or Ctrl+5 leaves it.

    Input may be a pipe: at its end the command leaves once the guest is silent for a second, and after five
    in any case.
    """
    session = current()
    with session.client() as client:
        keys = Keyboard(sys.stdin.fileno())
        output = client.instances.console(name, keys, namespace=session.namespace)
        keys.on_leave = output.close
        with raw_terminal(sys.stdin.fileno(), leave=output.close):
            try:
                for data in output:
                    if not data:
                        _say(f"Connected to the console of {name}. Press Ctrl+] or Ctrl+5 to leave it.")
                    keys.heard()
                    _write(data)
            finally:
                keys.stop()
                output.close()


class Keyboard:
    """What is typed, chunk by chunk, until the escape key, the end of input, or ``stop``.

    Iterated in a thread of gRPC's; the other methods are for the thread that prints.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._wake_out, self._wake_in = os.pipe()
        self._stopped = threading.Event()
        self._heard_at = time.monotonic()
        self.on_leave: Callable[[], object] = self._stopped.set
        """Called when the user leaves."""

    def heard(self) -> None:
        """The guest said something."""
        self._heard_at = time.monotonic()

    def stop(self) -> None:
        """End the iteration."""
        self._stopped.set()
        os.write(self._wake_in, b"x")

    def __iter__(self) -> Iterator[bytes]:
        while not self._stopped.is_set():
            ready, _, _ = select.select([self._fd, self._wake_out], [], [])
            if self._wake_out in ready:
                return
            data = os.read(self._fd, 4096)
            before, escape, _ = data.partition(ESCAPE)
            if before:
                yield before
            if escape:
                break
            if not data:
                self._let_finish()
                break
        self.on_leave()

    def _let_finish(self) -> None:
        """Wait until the guest was silent for a while (it may answer what it was sent), but not for ever."""
        self.heard()
        last = time.monotonic() + LINGER_S
        while (left := min(self._heard_at + QUIET_S, last) - time.monotonic()) > 0:
            if self._stopped.wait(left):
                return


@contextmanager
def raw_terminal(fd: int, *, leave: Callable[[], object]) -> Iterator[None]:
    """Raw mode while inside, if ``fd`` is a terminal.

    A signal that ends the process calls ``leave`` in a thread, and the process ends when the terminal is
    restored. Its handler must not raise: inside gRPC that can leave a lock held that ``leave`` needs.
    """
    if not os.isatty(fd):
        yield
        return
    before = termios.tcgetattr(fd)
    received: list[int] = []

    def on_signal(number: int, frame: FrameType | None) -> None:
        received.append(number)
        threading.Thread(target=leave, daemon=True).start()

    handlers = {number: signal.signal(number, on_signal) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        tty.setraw(fd)
        yield
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        click.echo("", err=True)
    if received:
        raise SystemExit(128 + received[0])


def _say(text: str) -> None:
    """For people, on a terminal in raw mode: a line needs its own carriage return."""
    if sys.stderr.isatty():
        sys.stderr.write(f"{text}\r\n")
        sys.stderr.flush()


def _write(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
