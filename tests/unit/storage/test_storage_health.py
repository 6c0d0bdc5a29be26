# SPDX-License-Identifier: Apache-2.0
"""Whether a volume's file can be used, how large it may be, and which file a path leads to."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from launcher.errors import StorageError
from launcher.plan.steps import CreateImage
from launcher.storage.health import fault, possible_size, take_room
from launcher.storage.identity import identities
from launcher.units import MIB


def image(path: Path, size: int) -> CreateImage:
    return CreateImage(
        owner="u", volume="v", path=str(path), format="raw", size=size, keep=True, grow=True, fit=True
    )


def test_a_file_that_can_be_read_has_no_fault(tmp_path: Path) -> None:
    disk = tmp_path / "d.img"
    assert "cannot be read: No such file" in fault(str(disk), block=False, room=True)
    disk.write_bytes(b"x")
    assert fault(str(disk), block=False, room=True) == ""
    assert "Is a directory" in fault(str(tmp_path), block=False, room=False)


def test_a_claim_may_be_as_large_as_its_file_or_its_capacity(tmp_path: Path) -> None:
    disk = tmp_path / "d.img"
    disk.write_bytes(bytes(2 * MIB))
    assert possible_size(str(disk), step=None) == (2 * MIB, False)
    assert possible_size(str(disk), step=image(disk, MIB)) == (2 * MIB, False)
    assert possible_size(str(disk), step=image(disk, 4 * MIB)) == (4 * MIB, False)
    size, short = possible_size(str(disk), step=image(disk, 1 << 60))
    assert short
    assert 2 * MIB <= size < 1 << 60
    with pytest.raises(StorageError, match=r"volume 'v': .*No such file"):
        possible_size(str(tmp_path / "gone"), step=image(tmp_path / "gone", MIB))


def test_room_is_taken_once_and_nothing_shrinks(tmp_path: Path) -> None:
    disk = tmp_path / "d.img"
    disk.write_bytes(b"kept")
    take_room("v", str(disk), MIB)
    assert disk.stat().st_blocks * 512 >= MIB
    take_room("v", str(disk), 4)
    assert disk.stat().st_size == MIB
    assert disk.read_bytes()[:4] == b"kept"


def test_one_file_is_the_same_under_all_its_names(tmp_path: Path) -> None:
    disk, other = tmp_path / "d.img", tmp_path / "other.img"
    disk.touch()
    other.touch()
    (tmp_path / "soft").symlink_to(disk)
    (tmp_path / "here").symlink_to(".")
    os.link(disk, tmp_path / "hard")
    names = [str(disk), str(tmp_path / "soft"), str(tmp_path / "hard"), f"{tmp_path}/here/d.img"]
    found = identities([*names, str(other)])
    assert len({found[name] for name in names}) == 1
    assert found[str(other)] != found[str(disk)]
    missing = identities([f"{tmp_path}/new.img", f"{tmp_path}/here/new.img"])
    assert len(set(missing.values())) == 1, "one that is made later is known by its place"
