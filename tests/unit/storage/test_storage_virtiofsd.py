# SPDX-License-Identifier: Apache-2.0
"""Daemons of shares, with a program that behaves like either virtiofsd: started once, found again, ended."""

from __future__ import annotations

import json
import os
import signal
import stat
import sys
from pathlib import Path

import pytest

from launcher.errors import HostUnsupported, StorageError
from launcher.host import detached
from launcher.plan.steps import MakeDirectory, StartVirtiofsd
from launcher.storage.virtiofsd import Virtiofsd

OLD = "    -o source=PATH             shared directory tree\n    -o modcaps=CAPLIST"
BARE = "    -o source=PATH             shared directory tree"
NEW = "  --shared-dir <PATH>  Shared directory path\n  --readonly  Set the file system read-only\n  --modcaps"
OLD_OPTIONS = ["-f", "-o", "source={at}a\\,b", "-o", "sandbox=chroot", "-o", "cache=auto"]
NEW_OPTIONS = ["--shared-dir={at}a,b", "--sandbox=chroot", "--cache=auto", "--modcaps=-mknod"]
PROGRAM = """#!{python}
import json, pathlib, socket, sys, time
if "--help" in sys.argv:
    print({help!r})
    sys.exit(0)
path = next(word for word in sys.argv if word.startswith("--socket-path="))[14:]
pathlib.Path({told!r}).open("a").write(json.dumps(sys.argv[1:]) + "\\n")
if "fail" in path:
    print("cannot serve", flush=True)
    sys.exit(1)
listening = socket.socket(socket.AF_UNIX)
listening.bind(path)
print("waiting", flush=True)
time.sleep(600)
"""


@pytest.fixture
def daemons() -> Virtiofsd:
    return Virtiofsd()


def program(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "virtiofsd"
    path.write_text(PROGRAM.format(python=sys.executable, help=text, told=str(tmp_path / "told")))
    path.chmod(0o755)
    return path


def step(tmp_path: Path, text: str, *, name: str = "s", readonly: bool = False) -> StartVirtiofsd:
    directory = tmp_path / "a,b"
    directory.mkdir(exist_ok=True)
    return StartVirtiofsd(
        owner="u",
        volume="v",
        program=str(program(tmp_path, text)),
        directory=str(directory),
        socket=str(tmp_path / f"{name}.sock"),
        log=str(tmp_path / "log"),
        readonly=readonly,
        uid=1234,
        gid=5678,
    )


def starts(tmp_path: Path) -> list[list[str]]:
    return [json.loads(line) for line in (tmp_path / "told").read_text().splitlines()]


async def test_it_is_started_once_and_found_by_the_next_agent(tmp_path: Path, daemons: Virtiofsd) -> None:
    asked = step(tmp_path, NEW)
    other = MakeDirectory(owner="u", path="/x")
    try:
        await daemons.start(asked)
        seen = Path(asked.socket).stat()
        assert (stat.S_ISSOCK(seen.st_mode), seen.st_uid, seen.st_gid) == (True, 1234, 5678)
        await daemons.start(asked)
        later = Virtiofsd()
        await later.start(asked)
        assert len(starts(tmp_path)) == 1
        assert daemons.faults([other, asked]) == later.faults([other, asked]) == ()
    finally:
        await daemons.stop(asked)
    assert not Path(asked.socket).exists()
    assert detached.find(f"--socket-path={asked.socket}") is None
    await daemons.stop(asked)  # twice is fine


async def test_its_death_is_told_and_it_can_be_started_anew(tmp_path: Path, daemons: Virtiofsd) -> None:
    asked = step(tmp_path, NEW)
    try:
        await daemons.start(asked)
        process = detached.find(f"--socket-path={asked.socket}")
        assert process is not None
        os.kill(process.pid, signal.SIGKILL)
        process.wait(10)
        for told in (daemons.faults([asked]), Virtiofsd().faults([asked])):
            assert len(told) == 1
            assert told[0].startswith("volume 'v': its virtiofsd has ended")
            assert told[0].endswith(": waiting"), "its last words"
        await daemons.start(asked)
        assert daemons.faults([asked]) == ()
        assert len(starts(tmp_path)) == 2
    finally:
        await daemons.stop(asked)


@pytest.mark.parametrize(
    ("text", "readonly", "options"),
    [
        (BARE, False, OLD_OPTIONS),
        (OLD, False, [*OLD_OPTIONS, "-o", "modcaps=-mknod"]),
        (NEW, False, NEW_OPTIONS),
        (NEW, True, [*NEW_OPTIONS, "--readonly"]),
    ],
)
async def test_either_program_gets_its_own_options(
    tmp_path: Path, daemons: Virtiofsd, text: str, readonly: bool, options: list[str]
) -> None:
    asked = step(tmp_path, text, readonly=readonly)
    try:
        await daemons.start(asked)
    finally:
        await daemons.stop(asked)
    (words,) = starts(tmp_path)
    assert words == [f"--socket-path={asked.socket}", *(o.format(at=f"{tmp_path}/") for o in options)]


async def test_read_only_needs_a_program_that_can(tmp_path: Path, daemons: Virtiofsd) -> None:
    with pytest.raises(HostUnsupported, match="read-only"):
        await daemons.start(step(tmp_path, OLD, readonly=True))


async def test_a_program_that_ends_at_once(tmp_path: Path, daemons: Virtiofsd) -> None:
    with pytest.raises(StorageError, match="volume 'v': virtiofsd did not start: cannot serve"):
        await daemons.start(step(tmp_path, NEW, name="fail"))


async def test_a_directory_that_is_not_there(tmp_path: Path, daemons: Virtiofsd) -> None:
    asked = step(tmp_path, NEW)
    Path(asked.directory).rmdir()
    with pytest.raises(StorageError, match="is not a directory"):
        await daemons.start(asked)
