# SPDX-License-Identifier: Apache-2.0
"""ISO images, read back by pycdlib: names, content, modes, the same bytes at any time and in any zone."""

from __future__ import annotations

import io
import stat
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pycdlib import PyCdlib

from launcher.errors import StorageError
from launcher.plan.media.material import MediaFile
from launcher.storage import iso

NAMES = st.text("abcdefghijklmnopqrstuvwxyzABCXYZ0123456789._-", min_size=1, max_size=253).filter(
    lambda name: name not in (".", "..")
)


def read(image: bytes, names: str = "rr_path") -> dict[str, bytes]:
    """All files of an image by their Rock Ridge (or, with ``joliet_path``, Joliet) paths."""
    opened = PyCdlib()
    opened.open_fp(io.BytesIO(image))
    found = {}
    for folder, _, files in opened.walk(**{names: "/"}):
        for name in files:
            path = f"{folder.rstrip('/')}/{name}"
            out = io.BytesIO()
            opened.get_file_from_iso_fp(out, **{names: path})
            found[path.lstrip("/")] = out.getvalue()
    opened.close()
    return found


@pytest.fixture
def tokyo(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Another time zone."""
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def a_volume() -> list[MediaFile]:
    long = "n" * 200
    return [
        MediaFile(path="openstack/latest/user_data", data=b"x" * 5000),
        MediaFile(path="meta-data", data=b"{}"),
        MediaFile(path="empty", data=b""),
        MediaFile(path=f"{long}a", data=b"1"),
        MediaFile(path=f"{long}b", data=b"2"),
        *(MediaFile(path=f"key{number}", data=str(number).encode()) for number in range(100)),
    ]


def test_names_and_content_come_back() -> None:
    files = a_volume()
    assert read(iso.iso_image("v", "cidata", files)) == {file.path: file.data for file in files}


def test_joliet_names_are_told_apart_however_long() -> None:
    found = read(iso.iso_image("v", "cidata", a_volume()), "joliet_path")
    assert sorted(found.values()) == sorted(file.data for file in a_volume())
    assert found["openstack/latest/user_data"] == b"x" * 5000
    assert max(len(name) for path in found for name in path.split("/")) <= iso.JOLIET_NAME


@settings(max_examples=25, deadline=None)
@given(st.dictionaries(NAMES, st.binary(max_size=3000), max_size=30))
def test_any_keys_come_back(data: dict[str, bytes]) -> None:
    files = [MediaFile(path=key, data=value) for key, value in data.items()]
    assert read(iso.iso_image("v", "cfgdata", files)) == data


def test_the_same_files_are_the_same_bytes_on_every_node(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    first = iso.iso_image("v", "cidata", a_volume())
    request.getfixturevalue("tokyo")
    later = time.time() + 12_345_678
    monkeypatch.setattr("pycdlib.pycdlib.time.time", lambda: later)
    assert iso.iso_image("v", "cidata", list(reversed(a_volume()))) == first


@pytest.mark.parametrize("label", ["config-2", "cidata", "unattendCD", "17-characters-ab", "x" * 32])
def test_the_label_is_where_blkid_looks(tmp_path: Path, label: str) -> None:
    image = iso.iso_image("v", label, a_volume())
    assert image[16 * 2048 + 40 : 16 * 2048 + 72] == label.encode().ljust(32)
    path = tmp_path / "v.iso"
    path.write_bytes(image)
    argv = ["blkid", "-p", "-s", "LABEL", "-o", "value", str(path)]
    assert subprocess.run(argv, capture_output=True, text=True, check=True).stdout == f"{label}\n"
    assert read(image) == {file.path: file.data for file in a_volume()}


@pytest.mark.parametrize("label", ["x" * 33, "ä"])
def test_a_label_that_does_not_fit_is_refused(label: str) -> None:
    with pytest.raises(StorageError, match="volume 'v': the label"):
        iso.iso_image("v", label, [])


def test_files_that_cannot_be_in_one_image_are_refused() -> None:
    files = [MediaFile(path="a", data=b"1"), MediaFile(path="a/b", data=b"2")]
    with pytest.raises(StorageError, match="volume 'v': its files do not go into one image"):
        iso.iso_image("v", "cfgdata", files)


def test_only_its_owner_reads_the_file(tmp_path: Path) -> None:
    path = tmp_path / "v.iso"
    path.write_bytes(b"old")
    path.chmod(0o644)
    iso.write_iso("v", path, "cidata", [MediaFile(path="k", data=b"s")], uid=1234, gid=5678)
    seen = path.stat()
    assert (stat.S_IMODE(seen.st_mode), seen.st_uid, seen.st_gid) == (0o600, 1234, 5678)
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_in_its_place_is_replaced_and_not_followed(tmp_path: Path) -> None:
    victim, path = tmp_path / "victim", tmp_path / "v.iso"
    victim.write_bytes(b"keep")
    path.symlink_to(victim)
    iso.write_private("v", path, b"data", uid=None, gid=None)
    assert (victim.read_bytes(), path.read_bytes(), path.is_symlink()) == (b"keep", b"data", False)


@pytest.mark.parametrize(
    "file",
    [
        MediaFile(path="/".join("abcdefgh") + "/f", data=b""),
        MediaFile(path="big", data=bytes(iso.MAX_BYTES + 1)),
    ],
    ids=["deep", "large"],
)
def test_what_does_not_fit_is_refused(file: MediaFile) -> None:
    with pytest.raises(StorageError, match="volume 'v'"):
        iso.iso_image("v", "cidata", [file])
