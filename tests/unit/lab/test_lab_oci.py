# SPDX-License-Identifier: Apache-2.0
"""Image layouts hold what went in, under the digests that they claim, and are the same bytes each time."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

from launcher.lab.oci import LayerFile, write_layout

FILES = [
    LayerFile(path="/disk/disk.img", data=b"content"),
    LayerFile(path="/boot/vmlinux", data=b"", mode=0o755),
]


def _blob(folder: Path, descriptor: dict[str, Any]) -> bytes:
    algorithm, _, digest = descriptor["digest"].partition(":")
    data: bytes = (folder / "blobs" / algorithm / digest).read_bytes()
    assert hashlib.new(algorithm, data).hexdigest() == digest
    assert len(data) == descriptor["size"]
    return data


def _manifest(folder: Path) -> dict[str, Any]:
    (entry,) = json.loads((folder / "index.json").read_bytes())["manifests"]
    return dict(json.loads(_blob(folder, entry)))


def test_the_layer_holds_the_files_and_their_folders(tmp_path: Path) -> None:
    write_layout(tmp_path, FILES)
    (layer,) = _manifest(tmp_path)["layers"]
    with tarfile.open(fileobj=io.BytesIO(_blob(tmp_path, layer)), mode="r:gz") as archive:
        found = {member.name: (member.isdir(), member.mode) for member in archive}
        disk = archive.extractfile("disk/disk.img")
        assert disk is not None
        assert disk.read() == b"content"
    assert found == {
        "boot": (True, 0o755),
        "disk": (True, 0o755),
        "boot/vmlinux": (False, 0o755),
        "disk/disk.img": (False, 0o444),
    }


def test_the_index_names_the_tag(tmp_path: Path) -> None:
    write_layout(tmp_path, FILES, tag="v1")
    (entry,) = json.loads((tmp_path / "index.json").read_bytes())["manifests"]
    assert entry["annotations"] == {"org.opencontainers.image.ref.name": "v1"}
    assert json.loads((tmp_path / "oci-layout").read_bytes()) == {"imageLayoutVersion": "1.0.0"}


def test_the_configuration_names_the_unpacked_layer(tmp_path: Path) -> None:
    write_layout(tmp_path, FILES)
    manifest = _manifest(tmp_path)
    config = json.loads(_blob(tmp_path, manifest["config"]))
    unpacked = gzip.decompress(_blob(tmp_path, manifest["layers"][0]))
    assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(unpacked).hexdigest()}"]
    assert (config["os"], config["architecture"]) == ("linux", "amd64")


def test_the_same_files_in_any_order_give_the_same_bytes(tmp_path: Path) -> None:
    for name, files in (("one", FILES), ("two", FILES[::-1])):
        (tmp_path / name).mkdir()
        write_layout(tmp_path / name, files)
    assert (tmp_path / "one/index.json").read_bytes() == (tmp_path / "two/index.json").read_bytes()
