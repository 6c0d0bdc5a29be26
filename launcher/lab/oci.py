# SPDX-License-Identifier: Apache-2.0
"""Writes files as a one-layer OCI image layout, the same bytes for the same input. It reads no image.

The format is that of the OCI image specification 1.0 (image-layout.md, manifest.md, config.md, layer.md).
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

TAG = "latest"
_LAYOUT_VERSION = "1.0.0"
_INDEX = "application/vnd.oci.image.index.v1+json"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
_REF_NAME = "org.opencontainers.image.ref.name"
_COMPRESSION = 1
"""gzip's fastest level: the layer is read on this machine, moments later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerFile:
    """A regular file of the layer; ``path`` is absolute in the image."""

    path: str
    data: bytes
    mode: int = 0o444


def write_layout(folder: Path, files: Sequence[LayerFile], *, tag: str = TAG) -> None:
    """Fill the empty ``folder`` with a layout whose image ``tag`` holds ``files``."""
    layer = _tar(files)
    compressed = io.BytesIO()
    with gzip.GzipFile("", "wb", _COMPRESSION, compressed, mtime=0) as stream:
        stream.write(layer)
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {},
        "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": _MANIFEST,
        "config": _blob(folder, _CONFIG, _json(config)),
        "layers": [_blob(folder, _LAYER, compressed.getvalue())],
    }
    entry = _blob(folder, _MANIFEST, _json(manifest)) | {"annotations": {_REF_NAME: tag}}
    index = {"schemaVersion": 2, "mediaType": _INDEX, "manifests": [entry]}
    (folder / "oci-layout").write_bytes(_json({"imageLayoutVersion": _LAYOUT_VERSION}))
    (folder / "index.json").write_bytes(_json(index))


def _tar(files: Sequence[LayerFile]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for folder in _folders(files):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(entry)
        for file in sorted(files, key=lambda file: file.path):
            entry = tarfile.TarInfo(file.path.lstrip("/"))
            entry.mode, entry.size = file.mode, len(file.data)
            archive.addfile(entry, io.BytesIO(file.data))
    return out.getvalue()


def _folders(files: Sequence[LayerFile]) -> list[str]:
    """Every folder above the files, each once, parents first."""
    parents = {str(parent) for file in files for parent in PurePosixPath(file.path.lstrip("/")).parents}
    return sorted(parents - {"."})


def _blob(folder: Path, media_type: str, data: bytes) -> dict[str, Any]:
    """Store ``data`` under its digest; returns its descriptor."""
    blobs = folder / "blobs" / "sha256"
    blobs.mkdir(parents=True, exist_ok=True)
    digest = _digest(data)
    (blobs / digest.removeprefix("sha256:")).write_bytes(data)
    return {"mediaType": media_type, "digest": digest, "size": len(data)}


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _json(value: dict[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()
