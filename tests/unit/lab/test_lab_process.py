# SPDX-License-Identifier: Apache-2.0
"""A process is known by its start time, too, so that a reused pid is never signalled."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from launcher.errors import CommandFailed, HostUnsupported, TimedOut
from launcher.lab import command
from launcher.lab.process import ProcessId, first_child


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process
        process.kill()


def test_a_running_process_is_alive_and_ends_by_a_signal(sleeper: subprocess.Popen[bytes]) -> None:
    found = ProcessId.of(sleeper.pid)
    assert found is not None
    assert found.alive()
    assert not found.wait_gone(0.0)
    assert found.signal(signal.SIGTERM)
    assert found.wait_gone(10.0), "a zombie counts as gone"
    assert not found.signal(signal.SIGTERM)
    assert ProcessId.of(sleeper.pid) is None


def test_the_same_pid_with_another_start_is_another_process(sleeper: subprocess.Popen[bytes]) -> None:
    found = ProcessId.of(sleeper.pid)
    assert found is not None
    reused = ProcessId(pid=found.pid, started=found.started + 1)
    assert not reused.alive()
    assert not reused.signal(signal.SIGKILL)
    assert sleeper.poll() is None


def test_this_process_and_its_child(sleeper: subprocess.Popen[bytes]) -> None:
    assert ProcessId.own().pid == os.getpid()
    with subprocess.Popen(["sh", "-c", "sleep 60 & wait"]) as shell:
        child = first_child(shell.pid)
        assert child is not None
        shell.kill()
        child.signal(signal.SIGKILL)
    assert first_child(sleeper.pid, timeout_s=0.05) is None


def test_commands_give_their_output_or_say_what_went_wrong(tmp_path: Path) -> None:
    assert command.run(["cat"], stdin=b"in") == b"in"
    assert command.run(["pwd"], cwd=tmp_path).decode().strip() == str(tmp_path)
    with pytest.raises(CommandFailed, match="status 3: oops"):
        command.run(["sh", "-c", "echo oops >&2; exit 3"])
    with pytest.raises(HostUnsupported, match="no-such-program"):
        command.run(["no-such-program"])
    began = time.monotonic()
    with pytest.raises(TimedOut):
        command.run(["sleep", "60"], timeout_s=0.05)
    assert time.monotonic() - began < 30
