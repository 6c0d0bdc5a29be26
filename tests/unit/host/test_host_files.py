# SPDX-License-Identifier: Apache-2.0
"""Files that are whole, directories with their modes, trees removed without following links."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from launcher.errors import StorageError
from launcher.host.files import make_directory, remove_tree, write_atomic


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def umask() -> Iterator[None]:
    before = os.umask(0o027)
    yield
    os.umask(before)


def test_writes_and_replaces(tmp_path: Path, umask: None) -> None:
    path = tmp_path / "state"
    write_atomic(path, b"one")
    assert (path.read_bytes(), mode(path)) == (b"one", 0o600)
    first = path.stat().st_ino
    write_atomic(path, b"two", mode=0o666)
    assert (path.read_bytes(), mode(path)) == (b"two", 0o666)
    assert path.stat().st_ino != first, "replaced, not written over"
    assert [entry.name for entry in tmp_path.iterdir()] == ["state"]


def test_a_link_is_replaced_and_not_followed(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_bytes(b"untouched")
    link.symlink_to(target)
    write_atomic(link, b"new")
    assert target.read_bytes() == b"untouched"
    assert not link.is_symlink()


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").touch()
    with pytest.raises(StorageError, match=r"cannot write .*taken"):
        write_atomic(tmp_path / "taken", b"data")
    assert [entry.name for entry in tmp_path.iterdir()] == ["taken"]
    with pytest.raises(StorageError, match="No such file"):
        write_atomic(tmp_path / "missing" / "file", b"data")


def test_makes_directories_with_the_mode_asked_for(tmp_path: Path, umask: None) -> None:
    make_directory(tmp_path / "a" / "b", mode=0o777)
    assert mode(tmp_path / "a" / "b") == 0o777
    make_directory(tmp_path / "a" / "b", mode=0o711)
    assert mode(tmp_path / "a" / "b") == 0o711


def test_a_link_is_no_directory(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o755)
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StorageError, match="cannot make directory"):
        make_directory(tmp_path / "link")
    assert mode(tmp_path / "elsewhere") == 0o755
    (tmp_path / "file").touch()
    with pytest.raises(StorageError):
        make_directory(tmp_path / "file")


def test_removes_a_tree_and_not_what_its_links_point_to(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    (kept / "inner").mkdir(parents=True)
    tree = tmp_path / "tree"
    (tree / "deep" / "deeper").mkdir(parents=True)
    (tree / "deep" / "file").touch()
    (tree / "deep" / "out").symlink_to(kept)
    remove_tree(tree)
    assert not tree.exists()
    assert (kept / "inner").is_dir()


def test_removes_a_link_itself_a_file_and_nothing(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "kept")
    (tmp_path / "file").touch()
    remove_tree(tmp_path / "link")
    remove_tree(tmp_path / "file")
    remove_tree(tmp_path / "nothing")
    assert [entry.name for entry in tmp_path.iterdir()] == ["kept"]
