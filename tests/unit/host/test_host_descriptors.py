# SPDX-License-Identifier: Apache-2.0
"""Descriptor files: which directories, which file of a name, and whether anything changed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from launcher.host.descriptors import MAX_BYTES, directories, present, read


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    packaged, administered = tmp_path / "usr", tmp_path / "etc"
    packaged.mkdir()
    administered.mkdir()
    return packaged, administered


def test_later_directories_win_by_name_and_names_rank_over_all(folders: tuple[Path, Path]) -> None:
    packaged, administered = folders
    (packaged / "60-plain.json").write_text("packaged")
    (packaged / "40-secure.json").write_text("secure")
    (packaged / "README").write_text("no descriptor")
    (administered / "60-plain.json").write_text("mine")
    (administered / "50-own.json").write_text("own")
    found = read((packaged, administered))
    assert list(found.texts.items()) == [
        ("40-secure.json", "secure"),
        ("50-own.json", "own"),
        ("60-plain.json", "mine"),
    ]


@pytest.mark.parametrize("mask", ["empty file", "link to nothing"])
def test_an_empty_file_hides_the_packaged_one(folders: tuple[Path, Path], mask: str) -> None:
    packaged, administered = folders
    (packaged / "60-plain.json").write_text("packaged")
    hiding = administered / "60-plain.json"
    if mask == "empty file":
        hiding.touch()
    else:
        hiding.symlink_to("/dev/null")
    assert read(folders).texts == {"60-plain.json": ""}


def test_what_cannot_be_read_is_left_out(folders: tuple[Path, Path]) -> None:
    packaged, _ = folders
    (packaged / "1.json").write_bytes(b"\xff\xfe")
    (packaged / "2.json").write_bytes(b" " * (MAX_BYTES + 1))
    (packaged / "3.json").symlink_to("nowhere")
    (packaged / "4.json").mkdir()
    os.mkfifo(packaged / "5.json")  # nobody writes: a reader that waits would hang
    (packaged / "6.json").write_text("{}")
    assert {name for name, text in read(folders).texts.items() if text} == {"6.json"}
    assert read((packaged / "absent",)).texts == {}


def test_only_a_change_is_read_again(folders: tuple[Path, Path]) -> None:
    packaged, _ = folders
    path = packaged / "1.json"
    path.write_text("old")
    first = read(folders)
    assert read(folders, before=first) is first
    path.write_text("newer")
    second = read(folders, before=first)
    assert second.texts == {"1.json": "newer"}
    (packaged / "2.json").write_text("more")
    assert set(read(folders, before=second).texts) == {"1.json", "2.json"}
    (packaged / "2.json").unlink()
    path.unlink()
    assert read(folders, before=second).texts == {}


def test_a_person_has_a_directory_of_his_own_and_the_system_has_not() -> None:
    system = (Path("/usr/share/qemu/firmware"), Path("/etc/qemu/firmware"))
    home = {"HOME": "/home/anna"}
    assert directories("firmware", privileged=True, environment=home) == system
    own = Path("/home/anna/.config/qemu/firmware")
    assert directories("firmware", privileged=False, environment=home) == (*system, own)
    config = {**home, "XDG_CONFIG_HOME": "/cfg"}
    assert directories("firmware", privileged=False, environment=config)[-1] == Path("/cfg/qemu/firmware")
    assert directories("firmware", privileged=False, environment={}) == system


def test_images_must_be_files(tmp_path: Path) -> None:
    image, link, folder = tmp_path / "CODE.fd", tmp_path / "CODE.ms.fd", tmp_path / "x"
    image.touch()
    link.symlink_to(image)
    folder.mkdir()
    asked = [str(path) for path in (image, link, folder, tmp_path / "absent")]
    assert present(asked) == {str(image), str(link)}
