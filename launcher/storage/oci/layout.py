# SPDX-License-Identifier: Apache-2.0
"""Read files out of an OCI image layout directory. Blocking; call it in a thread.

Every blob is checked against its digest and size before anything of it is believed. Only regular files
are ever taken out; names, links and sizes in an image are a stranger's input.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import platform
import re
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

from launcher.errors import StorageError

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}\Z")
_INDEX = "application/vnd.oci.image.index.v1+json"
_DOCKER_INDEX = "application/vnd.docker.distribution.manifest.list.v2+json"
_REF_NAME = "org.opencontainers.image.ref.name"
_MAX_JSON = 4 << 20
_CHUNK = 1 << 20
_WHITEOUT = ".wh."
_OPAQUE = ".wh..wh..opq"
_ARCH = {"x86_64": "amd64", "aarch64": "arm64", "s390x": "s390x"}


@dataclass(frozen=True, slots=True)
class Descriptor:
    """A blob: where it is and what it must be."""

    digest: str
    size: int
    media_type: str


@dataclass(frozen=True, slots=True)
class Image:
    """One image of a layout; ``digest`` is its manifest's."""

    root: Path
    digest: str
    layers: tuple[Descriptor, ...]


def open_image(root: Path, tag: str) -> Image:
    """Find the image ``tag`` (empty: the only one) of the layout in ``root``, for this architecture.

    Raises:
        StorageError: no layout, no such tag, a broken or foreign image.
    """
    if not (root / "oci-layout").is_file():
        raise StorageError("", f"{root} is not an OCI image layout (no oci-layout file)")
    index = _json((root / "index.json").read_bytes(), root / "index.json")
    candidates = [m for m in index.get("manifests", []) if isinstance(m, dict)]
    if tag:
        candidates = [m for m in candidates if m.get("annotations", {}).get(_REF_NAME) == tag]
    if not candidates:
        raise StorageError("", f"{root} has no image {tag!r}" if tag else f"{root} has no image")
    if len(candidates) > 1:
        candidates = [_for_this_machine(candidates, root)]
    descriptor = candidates[0]
    while descriptor.get("mediaType") in {_INDEX, _DOCKER_INDEX}:
        nested = _json_blob(root, _descriptor(descriptor, root))
        descriptor = _for_this_machine([m for m in nested.get("manifests", []) if isinstance(m, dict)], root)
    chosen = _descriptor(descriptor, root)
    manifest = _json_blob(root, chosen)
    layers = tuple(_descriptor(layer, root) for layer in manifest.get("layers", []))
    if not layers:
        raise StorageError("", f"image {tag or chosen.digest} of {root} has no layers")
    return Image(root, chosen.digest, layers)


def list_files(image: Image, folder: str) -> tuple[str, ...]:
    """Regular files directly in ``folder`` of the image, after all layers, sorted."""
    prefix = _normal(folder)
    seen: dict[str, bool] = {}
    for layer in image.layers:
        with _tar(image.root, layer) as tar:
            for member in tar:
                _apply(seen, member)
    return tuple(sorted(name for name, regular in seen.items() if regular and _parent(name) == prefix))


def extract(image: Image, name: str, destination: Path, *, limit: int) -> None:
    """Write the regular file ``name`` of the image to ``destination``, at most ``limit`` bytes.

    Sparse where the file is: runs of zeros become holes.

    Raises:
        StorageError: no such regular file, or it is larger than ``limit``.
    """
    wanted = _normal(name)
    for layer in reversed(image.layers):
        hidden = False
        with _tar(image.root, layer) as tar:
            for member in tar:
                path = _normal(member.name)
                if path == wanted:
                    _copy(tar, member, destination, limit)
                    return
                hidden = hidden or _hides(path, wanted)
        if hidden:
            break
    raise StorageError("", f"the image has no file /{wanted}")


def _copy(tar: tarfile.TarFile, member: tarfile.TarInfo, destination: Path, limit: int) -> None:
    if not member.isreg():
        raise StorageError("", f"/{_normal(member.name)} in the image is not a regular file")
    if member.size > limit:
        raise StorageError("", f"/{_normal(member.name)} has {member.size} bytes; at most {limit} are taken")
    source = tar.extractfile(member)
    if source is None:
        raise StorageError("", f"/{_normal(member.name)} in the image cannot be read")
    zeros = bytes(_CHUNK)
    with destination.open("wb") as out:
        while chunk := source.read(_CHUNK):
            if chunk == zeros[: len(chunk)]:
                out.seek(len(chunk), io.SEEK_CUR)
            else:
                out.write(chunk)
        out.truncate(member.size)


def _apply(seen: dict[str, bool], member: tarfile.TarInfo) -> None:
    path = _normal(member.name)
    leaf = path.rpartition("/")[2]
    if leaf == _OPAQUE:
        for name in [n for n in seen if n.startswith(f"{_parent(path)}/")]:
            del seen[name]
    elif leaf.startswith(_WHITEOUT):
        gone = f"{_parent(path)}/{leaf.removeprefix(_WHITEOUT)}".lstrip("/")
        for name in [n for n in seen if n == gone or n.startswith(f"{gone}/")]:
            del seen[name]
    else:
        seen[path] = member.isreg()


def _hides(path: str, wanted: str) -> bool:
    leaf = path.rpartition("/")[2]
    if leaf == _OPAQUE:
        return wanted.startswith(f"{_parent(path)}/")
    if leaf.startswith(_WHITEOUT):
        gone = f"{_parent(path)}/{leaf.removeprefix(_WHITEOUT)}".lstrip("/")
        return wanted == gone or wanted.startswith(f"{gone}/")
    return False


def _normal(name: str) -> str:
    return "/".join(part for part in PurePosixPath(name).parts if part not in {"/", "."})


def _parent(path: str) -> str:
    return path.rpartition("/")[0]


@contextmanager
def _tar(root: Path, layer: Descriptor) -> Iterator[tarfile.TarFile]:
    """The layer as a tar stream; its digest is checked before the first member is believed."""
    path = _verified(root, layer)
    with path.open("rb") as raw:
        magic = raw.read(4)
        raw.seek(0)
        stream: IO[bytes] | gzip.GzipFile
        if magic[:2] == b"\x1f\x8b":
            stream = gzip.GzipFile(fileobj=raw)
        elif magic == b"\x28\xb5\x2f\xfd":
            raise StorageError("", f"layer {layer.digest} is compressed with zstd; tar and gzip are accepted")
        else:
            stream = raw
        try:
            with tarfile.open(fileobj=stream, mode="r|") as tar:
                yield tar
        except (tarfile.TarError, EOFError, gzip.BadGzipFile) as error:
            raise StorageError("", f"layer {layer.digest} cannot be read: {error}") from error


def _verified(root: Path, descriptor: Descriptor) -> Path:
    path = root / "blobs" / "sha256" / descriptor.digest.removeprefix("sha256:")
    digest = hashlib.sha256()
    size = 0
    try:
        with path.open("rb") as blob:
            while chunk := blob.read(_CHUNK):
                digest.update(chunk)
                size += len(chunk)
    except OSError as error:
        raise StorageError(
            "", f"blob {descriptor.digest} of {root} cannot be read: {error.strerror}"
        ) from error
    if f"sha256:{digest.hexdigest()}" != descriptor.digest or size != descriptor.size:
        raise StorageError("", f"blob {descriptor.digest} of {root} does not match its digest and size")
    return path


def _json_blob(root: Path, descriptor: Descriptor) -> dict[str, Any]:
    if descriptor.size > _MAX_JSON:
        raise StorageError("", f"manifest {descriptor.digest} is larger than {_MAX_JSON} bytes")
    path = _verified(root, descriptor)
    return _json(path.read_bytes(), path)


def _json(text: bytes, path: Path) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise StorageError("", f"{path} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise StorageError("", f"{path} does not hold a JSON object")
    return value


def _descriptor(value: Any, root: Path) -> Descriptor:
    digest = value.get("digest") if isinstance(value, dict) else None
    size = value.get("size") if isinstance(value, dict) else None
    if not isinstance(digest, str) or not _DIGEST.match(digest) or not isinstance(size, int):
        raise StorageError("", f"{root} holds a descriptor without a sha256 digest and size")
    return Descriptor(digest, size, str(value.get("mediaType", "")))


def _for_this_machine(manifests: list[dict[str, Any]], root: Path) -> dict[str, Any]:
    arch = _ARCH.get(platform.machine(), platform.machine())
    fitting = [m for m in manifests if m.get("platform", {}).get("architecture", arch) == arch]
    if not fitting:
        raise StorageError("", f"{root} has no image for {arch}")
    return fitting[0]
