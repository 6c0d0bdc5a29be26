# SPDX-License-Identifier: Apache-2.0
"""Programs between a file and a reader, and daemons that are found again."""

from __future__ import annotations

import sys
from pathlib import Path

import psutil
import pytest

from launcher.errors import CommandFailed, HostUnsupported
from launcher.host import detached
from launcher.host.pipe import output_of

FOREVER = "import sys, time; sys.stdout.write('up\\n'); sys.stdout.flush(); time.sleep(600)"


def test_output_comes_as_a_stream(tmp_path: Path) -> None:
    path = tmp_path / "in"
    path.write_bytes(b"abc")
    with path.open("rb", buffering=0) as source, output_of(["tr", "a-c", "A-C"], source) as stream:
        assert stream.read(10) == b"ABC"


def test_a_failure_is_told_and_a_program_that_is_not_wanted_any_more_ends(tmp_path: Path) -> None:
    before = set(psutil.Process().children())
    path = tmp_path / "in"
    path.touch()
    with path.open("rb") as source:
        with pytest.raises(CommandFailed, match="status 3"), output_of(["sh", "-c", "exit 3"], source) as out:
            assert out.read(1) == b""
        with output_of([sys.executable, "-c", FOREVER], source) as stream:
            assert stream.read(3) == b"up\n"
        with pytest.raises(HostUnsupported), output_of(["no-such-program"], source):
            raise AssertionError("there is none")
    ours = set(psutil.Process().children()) - before
    assert not [child for child in ours if child.status() != psutil.STATUS_ZOMBIE]


def test_a_daemon_is_found_by_its_word_and_ended(tmp_path: Path) -> None:
    word = f"--socket={tmp_path}/s"
    assert detached.find(word) is None
    child = detached.start([sys.executable, "-c", FOREVER, word], log=tmp_path / "log")
    found = detached.find(word)
    assert found is not None
    assert found.pid == child.pid
    assert detached.runs(found)
    detached.end(found)
    assert child.poll() is not None or child.wait(5) is not None
    assert not detached.runs(found)
    assert detached.find(word) is None


def test_what_a_daemon_says_is_kept(tmp_path: Path) -> None:
    child = detached.start(["sh", "-c", "echo said >&2"], log=tmp_path / "log")
    child.wait(10)
    assert (tmp_path / "log").read_text() == "said\n"
    assert (tmp_path / "log").stat().st_mode & 0o777 == 0o600


def test_a_daemon_that_cannot_be_run(tmp_path: Path) -> None:
    with pytest.raises(CommandFailed, match="cannot be run"):
        detached.start([str(tmp_path / "none")], log=tmp_path / "log")
