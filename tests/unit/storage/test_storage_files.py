# SPDX-License-Identifier: Apache-2.0
"""Images that are made, grown and required; files that are shared; sizes of blocks; the cache of images."""

from __future__ import annotations

import os
import shutil
import stat
import time
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from launcher.errors import StorageError
from launcher.plan.devices.model import BlockSizes
from launcher.plan.media.material import Material, MediaFile
from launcher.plan.steps import CreateImage, RequireFile
from launcher.spec.model import Devices, DomainSpec, VirtualMachineInstance, VirtualMachineInstanceSpec
from launcher.storage.block_sizes import block_sizes
from launcher.storage.cache import ABANDONED_S, ImageCache
from launcher.storage.claims import require_file
from launcher.storage.executor import StorageExecutor
from launcher.storage.images import create_image, partial_path
from launcher.storage.limits import StorageSettings
from launcher.storage.share import write_files

MIB = 1 << 20
VMI = VirtualMachineInstance(spec=VirtualMachineInstanceSpec(domain=DomainSpec(devices=Devices())))


def image(path: Path, **fields: Any) -> CreateImage:
    return CreateImage(owner="uid", volume="v", path=str(path), format="raw", **fields)


# --- images -----------------------------------------------------------------------------------------------


async def test_an_image_that_is_there_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "d.img"
    path.write_bytes(b"x" * 512)
    await create_image(image(path, size=MIB, keep=True))
    assert path.read_bytes() == b"x" * 512


async def test_an_image_that_another_node_made_meanwhile_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, slow = tmp_path / "there" / "d.img", tmp_path / "bin" / "qemu-img"
    slow.parent.mkdir()
    path.parent.mkdir()
    slow.write_text(f'#!/bin/sh\necho theirs >{path}\nexec {shutil.which("qemu-img")} "$@"\n')
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", f"{slow.parent}:{os.environ['PATH']}")
    await create_image(image(path, size=MIB, keep=True))
    assert path.read_text() == "theirs\n"
    assert list(path.parent.iterdir()) == [path]


async def test_it_grows_and_never_shrinks(tmp_path: Path) -> None:
    path = tmp_path / "d.img"
    for size, expected in ((2, 2), (4, 4), (3, 4)):
        await create_image(image(path, size=size * MIB, keep=True, grow=True, fit=True))
        assert path.stat().st_size == expected * MIB
    assert path.stat().st_blocks * 512 < MIB, "sparse"


async def test_preallocation_takes_the_blocks(tmp_path: Path) -> None:
    path = tmp_path / "d.img"
    await create_image(image(path, size=2 * MIB, keep=True, preallocate=True))
    assert path.stat().st_blocks * 512 >= 2 * MIB


@pytest.mark.parametrize("kind", ["link", "folder", "empty", "no folder"])
async def test_something_else_in_its_place_is_refused(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "d.img"
    match kind:
        case "link":
            (tmp_path / "target").write_bytes(b"x")
            path.symlink_to("target")
        case "folder":
            path.mkdir()
        case "empty":
            path.touch()
        case _:
            path = tmp_path / "none" / "d.img"
    with pytest.raises(StorageError, match="volume 'v': "):
        await create_image(image(path, size=MIB, keep=True))


async def test_more_than_there_is_room_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.statvfs(tmp_path)

    def nearly_full(path: object) -> os.statvfs_result:
        return os.statvfs_result((4096, 4096, *real[2:4], 2500, *real[5:]))  # 2500 blocks: 9.8 MiB

    monkeypatch.setattr("launcher.storage.images.os.statvfs", nearly_full)
    with pytest.raises(StorageError, match=r"9\.6 MiB left, and 12\.0 MiB are asked for"):
        await create_image(image(tmp_path / "d.img", size=12 * MIB, fit=True, keep=True))
    await create_image(image(tmp_path / "d.img", size=10 * MIB, fit=True, keep=True))
    assert (tmp_path / "d.img").stat().st_size == 9 * MIB, "a tenth less is taken, in whole MiB"


async def test_release_takes_what_is_ours_and_what_a_kill_left(tmp_path: Path) -> None:
    storage = StorageExecutor(StorageSettings(state_dir=tmp_path, run_dir=tmp_path))
    for keep in (True, False):
        step = image(tmp_path / f"{keep}.img", size=MIB, keep=keep)
        assert await storage.make(step, Material(vmi=VMI, uuid="u")) == step
        partial_path(step).touch()
        await storage.release(step)
        await storage.release(step)
    assert [path.name for path in tmp_path.iterdir()] == ["True.img"]


@pytest.mark.parametrize(
    ("content", "size", "says"),
    [(None, 0, "No such file"), (b"", 0, "is empty"), (b"x" * 512, 1024, "has 512 B, and the claim says")],
)
def test_a_file_that_is_required(tmp_path: Path, content: bytes | None, size: int, says: str) -> None:
    path = tmp_path / "d"
    step = RequireFile(owner="u", volume="v", path=str(path), min_size=size)
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(StorageError, match=f"volume 'v': .*{says}"):
        require_file(step)
    path.write_bytes(b"x" * 1024)
    require_file(step)


@pytest.mark.parametrize("block", [True, False])
def test_a_file_of_another_kind(tmp_path: Path, block: bool) -> None:
    path = Path("/dev/null") if not block else tmp_path / "f"
    if block:
        path.write_bytes(b"x")
    with pytest.raises(StorageError, match="is not a"):
        require_file(RequireFile(owner="u", volume="v", path=str(path), block=block))


def test_a_link_in_a_claims_directory_leads_nowhere(tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(b"x" * 1024)
    path = tmp_path / "disk.img"
    path.symlink_to("other")
    named = RequireFile(owner="u", volume="v", path=str(path))
    require_file(named)
    with pytest.raises(StorageError, match="is a link") as caught:
        require_file(replace(named, link=False))
    assert caught.value.problem == "VolumeInvalid"


# --- shares and blocks ------------------------------------------------------------------------------------


def test_a_share_is_replaced_as_a_whole_and_seen_by_nobody_else(tmp_path: Path) -> None:
    folder = tmp_path / "shares" / "v"
    write_files("v", folder, [MediaFile(path="old", data=b"1")])
    write_files("v", folder, [MediaFile(path="sub/new", data=b"2", mode=0o440)])
    assert [str(p.relative_to(folder)) for p in sorted(folder.rglob("*"))] == ["sub", "sub/new"]
    assert stat.S_IMODE((folder / "sub" / "new").stat().st_mode) == 0o440
    assert stat.S_IMODE(folder.parent.stat().st_mode) == 0o700
    assert [path.name for path in folder.parent.iterdir()] == ["v"]


def test_a_file_has_the_blocks_of_its_file_system(tmp_path: Path) -> None:
    path = tmp_path / "d"
    path.write_bytes(b"x")
    size = os.statvfs(path).f_bsize
    found = block_sizes("v", path, block=False)
    assert found == BlockSizes(logical=size, physical=size, discard_granularity=size)


def test_what_is_no_device_has_no_blocks(tmp_path: Path) -> None:
    path = tmp_path / "d"
    path.write_bytes(b"x")
    with pytest.raises(StorageError, match="block size"):
        block_sizes("v", path, block=True)


# --- the cache --------------------------------------------------------------------------------------------

DIGEST = "sha256:" + "a" * 64


def cache(tmp_path: Path, limit: int = 0) -> ImageCache:
    return ImageCache(tmp_path / "images", tmp_path / "pulls", limit=limit)


def fill(made: ImageCache, key: str, size: int = 4096) -> None:
    with made.filling(DIGEST, key) as partial:
        partial.write_bytes(b"x" * size)


def test_a_file_appears_when_it_is_whole(tmp_path: Path) -> None:
    made = cache(tmp_path)
    with pytest.raises(FileNotFoundError), made.filling(DIGEST, "k") as partial:
        partial.with_name("none").rename(partial)
    with pytest.raises(IsADirectoryError), made.filling(DIGEST, "k") as partial:
        (partial.write_bytes(b"half"), tmp_path.read_bytes())
    assert list((tmp_path / "images" / ("a" * 64)).iterdir()) == []
    assert not made.has(DIGEST, "k")
    assert not made.link(DIGEST, "k", tmp_path / "v")
    fill(made, "k")
    assert made.link(DIGEST, "k", tmp_path / "v")
    assert made.link(DIGEST, "k", tmp_path / "v"), "twice is the same as once"
    assert made.digest_of(tmp_path / "v") == DIGEST


def test_eviction_spares_what_is_held_and_what_is_used(tmp_path: Path) -> None:
    made = cache(tmp_path, limit=1)
    for key in ("used", "idle"):
        fill(made, key)
    made.link(DIGEST, "used", tmp_path / "v")
    with made.holding(DIGEST):
        made.sweep()
        assert made.has(DIGEST, "idle")
    made.sweep()
    assert (made.has(DIGEST, "used"), made.has(DIGEST, "idle")) == (True, False)


def test_the_least_recently_used_goes_first(tmp_path: Path) -> None:
    made = cache(tmp_path, limit=9000)
    for age, key in enumerate(("new", "old", "older")):
        fill(made, key)
        os.utime(tmp_path / "images" / ("a" * 64) / key, (1000 - age, 1000 - age))
    made.sweep()
    assert [made.has(DIGEST, key) for key in ("new", "old", "older")] == [True, True, False]


def test_a_pull_that_fails_is_kept_for_an_hour_and_one_under_way_always(tmp_path: Path) -> None:
    made = cache(tmp_path)
    with pytest.raises(StorageError), made.pulling(DIGEST) as folder:
        raise StorageError("", "cut off")
    later = time.time() + ABANDONED_S + 60
    made.sweep()
    assert folder.exists()
    with made.pulling(DIGEST):
        made.sweep(now=later)
        assert folder.exists()
    assert not folder.exists(), "done"
    folder.mkdir()
    made.sweep(now=later)
    assert not folder.exists()


def test_references_are_remembered(tmp_path: Path) -> None:
    made = cache(tmp_path)
    assert made.recall("reg/a:1") is None
    made.remember("reg/a:1", DIGEST)
    assert made.recall("reg/a:1") == DIGEST
    made.sweep()
    assert made.recall("reg/a:1") == DIGEST
