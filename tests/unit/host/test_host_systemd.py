# SPDX-License-Identifier: Apache-2.0
"""sd_notify on real sockets."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from launcher.host.systemd import Notifier, notifier


@pytest.fixture(params=["file", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, socket.socket]]:
    """NOTIFY_SOCKET and the socket that a service manager listens on."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.settimeout(10)
        if request.param == "abstract":
            name = f"launcher-test-{os.getpid()}-{os.urandom(4).hex()}"
            listening.bind(f"\0{name}")
            yield f"@{name}", listening
        else:
            listening.bind(str(tmp_path / "s"))
            yield str(tmp_path / "s"), listening


def test_messages(manager: tuple[str, socket.socket]) -> None:
    address, listening = manager
    told = notifier({"NOTIFY_SOCKET": address})
    messages: tuple[tuple[Callable[[], bool], str], ...] = (
        (told.ready, "READY=1"),
        (lambda: told.ready("3 machines"), "READY=1\nSTATUS=3 machines"),
        (lambda: told.status("two\nlines\nREADY=1"), "STATUS=two lines READY=1"),
        (lambda: told.stopping("draining"), "STOPPING=1\nSTATUS=draining"),
        (told.watchdog, "WATCHDOG=1"),
        (lambda: told.extend_timeout(2.5), "EXTEND_TIMEOUT_USEC=2500000"),
    )
    for send, expected in messages:
        assert send()
        assert listening.recv(4096).decode() == expected
    assert told.reloading()
    assert re.fullmatch(r"RELOADING=1\nMONOTONIC_USEC=\d+", listening.recv(4096).decode())


def test_without_a_manager_nothing_happens(tmp_path: Path) -> None:
    assert notifier({}) == Notifier()
    assert notifier({"NOTIFY_SOCKET": "relative"}) == Notifier()
    assert notifier({}).ready() is False
    assert Notifier(address=str(tmp_path / "gone")).ready() is False


def test_the_watchdog_is_fed_twice_as_often_as_asked() -> None:
    environ = {"NOTIFY_SOCKET": "/s", "WATCHDOG_USEC": "30000000"}
    assert notifier(environ).watchdog_interval_s == 15.0
    assert notifier({**environ, "WATCHDOG_PID": "7"}, pid=7).watchdog_interval_s == 15.0
    assert notifier({**environ, "WATCHDOG_PID": "7"}, pid=8).watchdog_interval_s is None
    assert notifier({**environ, "WATCHDOG_USEC": "soon"}).watchdog_interval_s is None
    assert notifier({"NOTIFY_SOCKET": "/s"}).watchdog_interval_s is None
