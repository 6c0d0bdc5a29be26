# SPDX-License-Identifier: Apache-2.0
"""Who on this host writes a file."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from launcher.host.openers import writers


def holding(path: Path, how: str) -> subprocess.Popen[bytes]:
    """A process that has ``path`` open and has said so."""
    script = f"exec 9{how}'{path}'; echo open; exec cat"
    process = subprocess.Popen(["sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"open\n"
    return process


def test_a_writer_is_found_by_any_name_of_the_file(tmp_path: Path) -> None:
    disk, other, read = (tmp_path / name for name in ("disk", "other", "read"))
    for path in (disk, other, read):
        path.write_bytes(b"x")
    link = tmp_path / "link"
    link.symlink_to(disk)
    with holding(disk, "<>") as writer, holding(read, "<") as reader:
        found = writers([str(link), str(other), str(read), str(tmp_path / "none")])
        for process in (writer, reader):
            assert process.stdin is not None
            process.stdin.close()
    assert found.keys() == {str(link)}
    assert found[str(link)].endswith(f"({writer.pid})")


def test_what_we_have_open_ourselves_does_not_count(tmp_path: Path) -> None:
    path = tmp_path / "disk"
    with path.open("wb") as opened:
        assert os.fstat(opened.fileno()).st_ino == path.stat().st_ino
        assert writers([str(path)]) == {}
    assert writers([]) == {}
