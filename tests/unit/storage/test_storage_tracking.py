# SPDX-License-Identifier: Apache-2.0
"""What tracks the changes of a raw image has none of its data, and never touches it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from launcher.errors import StorageError
from launcher.plan.steps import TrackChanges
from launcher.storage.tracking import parts, track_changes
from launcher.units import MIB


def step(tmp_path: Path, data: Path, *, uid: int | None = None) -> TrackChanges:
    path = str(tmp_path / "v.changes.qcow2")
    return TrackChanges(owner="o", volume="v", path=path, data_path=str(data), uid=uid)


async def test_the_image_is_as_it_was_and_reads_the_same(tmp_path: Path) -> None:
    data = tmp_path / "a,b.raw"
    content = os.urandom(2 * MIB + 512)
    data.write_bytes(content)
    made = step(tmp_path, data)
    await track_changes(made)
    assert data.read_bytes() == content
    compare = ["qemu-img", "compare", "-f", "raw", "-F", "qcow2", str(data), made.path]
    subprocess.run(compare, check=True, capture_output=True)
    # Made twice is made once; a half-made one is made again; one of another size, too.
    before = Path(made.path).stat().st_mtime_ns
    await track_changes(made)
    assert Path(made.path).stat().st_mtime_ns == before
    for part in parts(made):
        part.write_bytes(b"left")
    data.write_bytes(content + bytes(MIB))
    await track_changes(made)
    subprocess.run(compare, check=True, capture_output=True)
    assert data.read_bytes() == content + bytes(MIB)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a,b.raw", "v.changes.qcow2"]


async def test_an_image_that_cannot_be_tracked_says_why(tmp_path: Path) -> None:
    data = tmp_path / "d.raw"
    with pytest.raises(StorageError, match=r"volume 'v'|No such file"):
        await track_changes(step(tmp_path, data))
    data.write_bytes(bytes(1000))
    with pytest.raises(StorageError, match="ends within a sector"):
        await track_changes(step(tmp_path, data))
    data.write_bytes(bytes(1024))
    with pytest.raises(StorageError, match=r"QEMU \(uid 12345\) may not write"):
        await track_changes(step(tmp_path, data, uid=12345))
    data.chmod(0o666)
    await track_changes(step(tmp_path, data, uid=12345))
