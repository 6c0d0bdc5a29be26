# SPDX-License-Identifier: Apache-2.0
"""The metrics disk as a guest reads it."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.errors import Bug, StorageError
from launcher.host import vhostmd

CONTENT = b"<metrics>\n</metrics>\n"


def test_the_layout_is_vhostmds(tmp_path: Path) -> None:
    disk = tmp_path / "vhostmd0"
    vhostmd.create("dm", disk, CONTENT)
    data = disk.read_bytes()
    assert len(data) == 262144
    assert struct.unpack(">4sIII", data[:16]) == (b"mvbd", 0, sum(CONTENT), len(CONTENT))
    assert data[16 : 16 + len(CONTENT)] == CONTENT
    assert not any(data[16 + len(CONTENT) :])
    assert disk.stat().st_mode & 0o777 == 0o644
    assert [path.name for path in tmp_path.iterdir()] == ["vhostmd0"]


def test_it_is_rewritten_in_place_and_made_once(tmp_path: Path) -> None:
    disk = tmp_path / "vhostmd0"
    vhostmd.create("dm", disk, CONTENT)
    with disk.open("rb") as guest:
        vhostmd.write(disk, b"<metrics/>\n")
        vhostmd.create("dm", disk, CONTENT)
        assert vhostmd.read(guest.read()) == b"<metrics/>\n"


def test_a_reader_takes_nothing_that_is_being_rewritten(tmp_path: Path) -> None:
    disk = tmp_path / "vhostmd0"
    vhostmd.create("dm", disk, CONTENT)
    data = bytearray(disk.read_bytes())
    assert vhostmd.read(bytes(data)) == CONTENT
    data[7] = 1
    assert vhostmd.read(bytes(data)) is None
    data[7], data[20] = 0, 0
    assert vhostmd.read(bytes(data)) is None


@given(st.binary(max_size=1000))
def test_what_is_no_disk_is_told(data: bytes) -> None:
    assert vhostmd.read(data) is None or data.startswith(b"mvbd")


def test_what_cannot_be_written_is_an_error_of_storage(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="No such file"):
        vhostmd.write(tmp_path / "absent", CONTENT)
    with pytest.raises(StorageError, match="No such file"):
        vhostmd.create("dm", tmp_path / "absent" / "disk", CONTENT)
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_bytes(b"a guest's")
    link.symlink_to(target)
    with pytest.raises(StorageError):
        vhostmd.write(link, CONTENT)
    assert target.read_bytes() == b"a guest's"
    with pytest.raises(Bug):
        vhostmd.create("dm", tmp_path / "large", bytes(262144))
