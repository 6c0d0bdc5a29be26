# SPDX-License-Identifier: Apache-2.0
"""Archives are read back by cpio(1) as what went in."""

from __future__ import annotations

import stat
import subprocess
from pathlib import Path

from launcher.lab import cpio

ENTRIES = [
    cpio.folder("bin"),
    cpio.file("bin/program", b"\x7fELF", executable=True),
    cpio.link("bin/sh", "program"),
    cpio.file("empty", b""),
]


def test_cpio_unpacks_the_archive(tmp_path: Path) -> None:
    unpack = ["cpio", "-id", "--quiet", "--no-absolute-filenames"]
    subprocess.run(unpack, input=cpio.archive(ENTRIES), cwd=tmp_path, check=True)
    program = tmp_path / "bin/program"
    assert program.read_bytes() == b"\x7fELF"
    assert stat.S_IMODE(program.stat().st_mode) == 0o755
    assert (tmp_path / "bin/sh").readlink() == Path("program")
    assert (tmp_path / "empty").read_bytes() == b""


def test_devices_carry_their_numbers() -> None:
    archive = cpio.archive([cpio.character_device("dev/console", 5, 1)])
    listed = subprocess.run(
        ["cpio", "-itv", "--quiet"], input=archive, capture_output=True, check=True
    ).stdout
    assert listed.startswith(b"crw-------")
    assert b" 5,   1 " in listed


def test_every_part_begins_at_a_multiple_of_four_bytes() -> None:
    for size in range(5):
        assert len(cpio.archive([cpio.file("x" * size, b"y" * size)])) % 4 == 0
