# SPDX-License-Identifier: Apache-2.0
"""Files that disks are copied to: what is said against them, and their size afterwards."""

from __future__ import annotations

from pathlib import Path

from launcher.storage.destination import Spot, fit, objection
from launcher.units import MIB


def spot(path: Path, size: int = 2 * MIB, **more: object) -> Spot:
    return Spot(volume="v", path=str(path), block=False, size=size, **more)  # type: ignore[arg-type]


def test_what_is_said_against_a_place(tmp_path: Path) -> None:
    image = tmp_path / "disk.img"
    assert objection(spot(image)) == "", "it will be made"
    image.write_bytes(bytes(4 * MIB))
    assert objection(spot(image)) == "", "it will be made smaller"
    assert "could not be found out" in objection(spot(image, size=0))
    assert objection(spot(image, capacity=MIB)) == "the claim has 1.0 MiB, and the disk 2.0 MiB"
    assert "is not on this node" in objection(spot(tmp_path / "none" / "disk.img"))
    assert "not a regular file" in objection(spot(tmp_path))
    (tmp_path / "link").symlink_to(image)
    assert "not a regular file" in objection(spot(tmp_path / "link"))
    huge = 1 << 60
    assert "left, and the disk takes" in objection(spot(tmp_path / "new", size=huge, taken=huge))
    assert objection(spot(tmp_path / "new", size=huge, taken=MIB)) == "", "holes need no room"
    assert "left" in objection(spot(tmp_path / "new", size=huge, taken=MIB, preallocated=True))
    device = Spot(volume="v", path=str(image), block=True, size=MIB)
    assert "is not a block device" in objection(device)
    assert "is not on this node" in objection(Spot(volume="v", path="/dev/nothing", block=True, size=MIB))


async def test_a_larger_image_becomes_as_large_as_the_disk_and_has_holes(tmp_path: Path) -> None:
    image = tmp_path / "disk.img"
    image.write_bytes(b"\xff" * 4 * MIB)
    assert await fit(spot(image)) == 0
    assert image.stat().st_size == 2 * MIB
    assert image.stat().st_blocks * 512 < MIB
    assert await fit(spot(image, size=3 * MIB)) == 0
    assert image.stat().st_size == 2 * MIB, "made larger by others"
    assert await fit(spot(tmp_path / "none")) == 0
    image.write_bytes(b"\xff" * 4 * MIB)
    await fit(spot(image, preallocated=True))
    assert image.read_bytes() == b"\xff" * 2 * MIB, "its blocks stay"
