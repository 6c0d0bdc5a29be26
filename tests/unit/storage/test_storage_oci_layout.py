# SPDX-License-Identifier: Apache-2.0
"""Reading OCI image layouts: the right file comes out, and nothing of a bad image is believed."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import platform
import tarfile
from pathlib import Path

import pytest

from launcher.errors import StorageError
from launcher.storage.oci import layout, size

LAYER = 1 << 30

LIMIT = 1 << 20


def tar(*entries: tuple[str, bytes | None]) -> bytes:
    """A tar of (name, content); content None makes a symbolic link to /etc/passwd."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in entries:
            info = tarfile.TarInfo(name)
            if content is None:
                info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
                archive.addfile(info)
            else:
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def make_layout(root: Path, *layers: bytes, tag: str = "latest", pack: bool = True) -> Path:
    """A layout with one image of the given layers."""
    blobs = root / "blobs" / "sha256"
    blobs.mkdir(parents=True)

    def blob(content: bytes, media_type: str) -> dict[str, object]:
        digest = hashlib.sha256(content).hexdigest()
        (blobs / digest).write_bytes(content)
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(content)}

    packed = [
        blob(gzip.compress(layer) if pack else layer, "application/vnd.oci.image.layer.v1.tar")
        for layer in layers
    ]
    config = blob(b"{}", "application/vnd.oci.image.config.v1+json")
    manifest = {"schemaVersion": 2, "config": config, "layers": packed}
    descriptor = blob(json.dumps(manifest).encode(), "application/vnd.oci.image.manifest.v1+json")
    descriptor["annotations"] = {"org.opencontainers.image.ref.name": tag}
    (root / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [descriptor]}))
    (root / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    return root


@pytest.mark.parametrize("pack", [True, False], ids=["gzip", "tar"])
def test_file_comes_out_of_the_last_layer_that_has_it(tmp_path: Path, *, pack: bool) -> None:
    root = make_layout(
        tmp_path / "l", tar(("disk/disk.img", b"old")), tar(("./disk/disk.img", b"new")), pack=pack
    )
    image = layout.open_image(root, "latest", limit=LAYER)
    assert layout.list_files(image, "/disk") == ("disk/disk.img",)
    layout.extract(image, "/disk/disk.img", tmp_path / "out", limit=LIMIT)
    assert (tmp_path / "out").read_bytes() == b"new"


def test_whiteouts_hide_files_of_lower_layers(tmp_path: Path) -> None:
    root = make_layout(
        tmp_path / "l",
        tar(("disk/a", b"a"), ("disk/b", b"b"), ("opt/c", b"c")),
        tar(("disk/.wh.a", b""), ("opt/.wh..wh..opq", b"")),
    )
    image = layout.open_image(root, "", limit=LAYER)
    assert layout.list_files(image, "disk") == ("disk/b",)
    assert layout.list_files(image, "opt") == ()
    for hidden in ("disk/a", "opt/c"):
        with pytest.raises(StorageError, match="no file"):
            layout.extract(image, hidden, tmp_path / "out", limit=LIMIT)


def test_zeros_become_holes_and_content_stays(tmp_path: Path) -> None:
    content = bytes(3 << 20) + b"end" + bytes(1 << 20)
    image = layout.open_image(make_layout(tmp_path / "l", tar(("disk/d", content))), "", limit=LAYER)
    layout.extract(image, "disk/d", tmp_path / "out", limit=1 << 30)
    assert (tmp_path / "out").read_bytes() == content
    assert (tmp_path / "out").stat().st_blocks * 512 < len(content)


def test_links_are_refused_and_never_listed(tmp_path: Path) -> None:
    image = layout.open_image(make_layout(tmp_path / "l", tar(("disk/disk.img", None))), "", limit=LAYER)
    assert layout.list_files(image, "disk") == ()
    with pytest.raises(StorageError, match="not a regular file"):
        layout.extract(image, "disk/disk.img", tmp_path / "out", limit=LIMIT)


def test_file_over_the_limit_is_refused(tmp_path: Path) -> None:
    image = layout.open_image(make_layout(tmp_path / "l", tar(("disk/d", b"12345"))), "", limit=LAYER)
    with pytest.raises(StorageError, match="at most 4"):
        layout.extract(image, "disk/d", tmp_path / "out", limit=4)


def test_a_blob_that_does_not_match_its_digest_is_refused(tmp_path: Path) -> None:
    root = make_layout(tmp_path / "l", tar(("disk/d", b"x")))
    image = layout.open_image(root, "", limit=LAYER)
    blob = root / "blobs" / "sha256" / image.layers[0].digest.removeprefix("sha256:")
    blob.write_bytes(blob.read_bytes() + b"!")
    with pytest.raises(StorageError, match="does not match its digest"):
        layout.extract(image, "disk/d", tmp_path / "out", limit=LIMIT)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda root: (root / "oci-layout").unlink(), "not an OCI image layout"),
        (lambda root: (root / "index.json").write_text("[]"), "does not hold a JSON object"),
        (lambda root: (root / "index.json").write_text("{"), "is not JSON"),
        (lambda root: (root / "index.json").write_text("[" * 100_000), "is not JSON"),
        (lambda root: (root / "index.json").write_text(" " * (5 << 20)), "is larger than"),
        (lambda root: (root / "index.json").unlink(), "index.json: No such file"),
        (lambda root: (root / "index.json").write_text('{"manifests": []}'), "has no image"),
        (lambda root: (root / "index.json").write_text('{"manifests": 7}'), "has no image"),
        (
            lambda root: (root / "index.json").write_text('{"manifests": [{"annotations": 1}]}'),
            "no image 'latest'|without a sha256 digest",
        ),
        (
            lambda root: (root / "index.json").write_text('{"manifests": [{"mediaType": []}]}'),
            "without a sha256 digest",
        ),
        (
            lambda root: (root / "index.json").write_text(
                '{"manifests": [{"digest": "sha256:../../etc", "size": 1}]}'
            ),
            "without a sha256 digest",
        ),
    ],
)
def test_broken_layouts_are_named(tmp_path: Path, spoil: object, message: str) -> None:
    root = make_layout(tmp_path / "l", tar(("disk/d", b"x")))
    assert callable(spoil)
    spoil(root)
    with pytest.raises(StorageError, match=message):
        layout.open_image(root, "", limit=LAYER)


def test_unknown_tag_is_named(tmp_path: Path) -> None:
    root = make_layout(tmp_path / "l", tar(("disk/d", b"x")), tag="v1")
    with pytest.raises(StorageError, match="no image 'v2'"):
        layout.open_image(root, "v2", limit=LAYER)


ONE = {"digest": f"sha256:{'1' * 64}", "size": 3 << 20}
TWO = {"digest": f"sha256:{'2' * 64}", "size": 5}


def test_what_an_image_takes_is_in_its_manifest() -> None:
    text = json.dumps({"layers": [ONE, TWO, ONE]}).encode()
    assert size.nested(text, "image") is None
    assert size.image_bytes(text, "image") == (3 << 20) + 5, "a layer that is named twice is there once"


def test_of_an_index_the_image_for_this_machine_counts() -> None:
    arch = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    entries = [
        {**ONE, "platform": {"architecture": "other"}},
        {**TWO, "platform": {"architecture": arch}},
    ]
    found = size.nested(json.dumps({"manifests": entries}).encode(), "image")
    assert found is not None
    assert found.digest == TWO["digest"]
    with pytest.raises(StorageError, match="image has no image for"):
        size.nested(json.dumps({"manifests": entries[:1]}).encode(), "image")


@pytest.mark.parametrize(
    "manifest", [b"{}", b'{"layers": 1}', b'{"layers": [1]}', b"[]", b"no", b'{"layers":[]}']
)
def test_a_manifest_that_tells_nothing_is_refused(manifest: bytes) -> None:
    with pytest.raises(StorageError):
        size.image_bytes(manifest, "image")


def test_an_image_needs_room(tmp_path: Path) -> None:
    size.require_room(tmp_path, 1 << 20, limit=1 << 20)
    with pytest.raises(StorageError, match=r"the image has 2\.0 MiB; at most 1\.0 MiB are taken"):
        size.require_room(tmp_path, 2 << 20, limit=1 << 20)
    with pytest.raises(StorageError, match="left, and the image has"):
        size.require_room(tmp_path, 1 << 60, limit=1 << 62)
