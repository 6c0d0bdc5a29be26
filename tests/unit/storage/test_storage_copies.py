# SPDX-License-Identifier: Apache-2.0
"""Folders and room of copies, and whether a dump of memory is whole."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from launcher.errors import Exhausted, StorageError
from launcher.storage import copies


def core(path: Path, *, cut: int = 0, many: bool = False) -> Path:
    """A small ELF core of a note and a segment with 4096 bytes; without its last ``cut`` bytes."""
    count, table = 2, 64
    first = table + 2 * 56 + (64 if many else 0)
    sections = first - 64 if many else 0
    ident = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    number = 0xFFFF if many else count
    head = struct.pack("<HHIQQQIHHHHHH", 4, 62, 1, 0, table, sections, 0, 64, 56, number, 64, int(many), 0)
    note = struct.pack("<II6Q", 4, 0, first, 0, 0, 16, 16, 0)
    load = struct.pack("<II6Q", 1, 0, first + 16, 0, 0, 4096, 4096, 0)
    section = struct.pack("<IIQQQQIIQQ", 0, 0, 0, 0, 0, 0, 0, count, 0, 0) if many else b""
    data = ident + head + note + load + section + bytes(16 + 4096)
    path.write_bytes(data[: len(data) - cut])
    return path


@pytest.mark.parametrize("many", [False, True])
def test_a_core_is_whole_when_its_last_segment_is(tmp_path: Path, many: bool) -> None:
    assert copies.is_whole_core(core(tmp_path / "whole", many=many))
    assert not copies.is_whole_core(core(tmp_path / "cut", many=many, cut=1))
    assert not copies.is_whole_core(core(tmp_path / "head", many=many, cut=4200))


def test_what_is_no_core_is_not_whole(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    (tmp_path / "other").write_bytes(b"#!/bin/sh\n" * 100)
    for name in ("empty", "other", "missing"):
        assert not copies.is_whole_core(tmp_path / name)


def test_what_a_guest_put_in_place_of_a_core_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(core(tmp_path / "whole"))
    os.mkfifo(tmp_path / "pipe")
    data = bytearray(core(tmp_path / "endless", many=True).read_bytes())
    struct.pack_into("<I", data, 64 + 2 * 56 + 44, 0xFFFFFFFF)
    (tmp_path / "endless").write_bytes(data)
    for name in ("link", "pipe", "endless"):
        assert not copies.is_whole_core(tmp_path / name)


def test_a_backup_has_a_folder_of_its_own(tmp_path: Path) -> None:
    copies.make_backup_directory(tmp_path / "web/b-1")
    (tmp_path / "web/b-1/v.qcow2").touch()
    with pytest.raises(StorageError, match="is there already"):
        copies.make_backup_directory(tmp_path / "web/b-1")
    with pytest.raises(StorageError, match="is not a directory"):
        copies.make_backup_directory(tmp_path / "none/web/b-1")


def test_room_is_looked_at_before_anything_is_written(tmp_path: Path) -> None:
    image = tmp_path / "image"
    image.write_bytes(b"x" * 8192)
    copies.require_room(tmp_path, [image])
    with pytest.raises(Exhausted, match="are needed"):
        copies.require_bytes(tmp_path, 1 << 60)
    with pytest.raises(StorageError, match="No such file"):
        copies.require_room(tmp_path, [tmp_path / "gone"])


def test_folders_of_copies_go_with_the_last_one(tmp_path: Path) -> None:
    first, second = tmp_path / "snapshots/uid/a", tmp_path / "snapshots/uid/b"
    for folder in (first, second):
        copies.make_copy_directory(folder)
        (folder / "v.qcow2").write_bytes(b"x")
    copies.sync_files([first / "v.qcow2"])
    copies.remove_copy_directory(first)
    assert second.is_dir()
    copies.remove_copy_directory(second)
    copies.remove_copy_directory(second)
    assert list((tmp_path / "snapshots").iterdir()) == []


def test_a_users_folder_must_be_there_without_the_files(tmp_path: Path) -> None:
    copies.require_directory(tmp_path, files=[tmp_path / "a"])
    (tmp_path / "a").symlink_to("nowhere")
    with pytest.raises(StorageError, match="is there already"):
        copies.require_directory(tmp_path, files=[tmp_path / "a"])
    with pytest.raises(StorageError, match="is not a directory"):
        copies.require_directory(tmp_path / "b")
    copies.remove_files([tmp_path / "a", tmp_path / "b"])
    assert list(tmp_path.iterdir()) == []
