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
import threading
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from launcher.errors import CommandFailed, StorageError
from launcher.host.pipe import output_of
from launcher.host.run import Limits
from launcher.storage.oci.tar import Member, Readable, members
from launcher.units import GIB

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}\Z")
_INDEX = "application/vnd.oci.image.index.v1+json"
_DOCKER_INDEX = "application/vnd.docker.distribution.manifest.list.v2+json"
_REF_NAME = "org.opencontainers.image.ref.name"
_MAX_JSON = 4 << 20
_CHUNK = 1 << 20
_WHITEOUT = ".wh."
_OPAQUE = ".wh..wh..opq"
_MAX_LISTED = 10_000
_MAX_LAYERS = 512
"""Each may be unpacked to the limit; Docker makes 127 at most."""
# A frame's window may be as large as its author likes; more than this is refused by zstd itself.
_ZSTD = ("zstd", "-dcq", "--memory=256MB")
_ZSTD_LIMITS = Limits(address_space_bytes=GIB)
_ARCH = {"x86_64": "amd64", "aarch64": "arm64", "s390x": "s390x"}


@dataclass(frozen=True, slots=True)
class Descriptor:
    """A blob: where it is and what it must be."""

    digest: str
    size: int
    media_type: str


@dataclass(frozen=True, slots=True)
class Image:
    """One image of a layout; ``digest`` is its manifest's. At most ``limit`` bytes of a layer are read.

    Setting ``stop`` ends what another thread does with the image.
    """

    root: Path
    digest: str
    layers: tuple[Descriptor, ...]
    limit: int
    stop: threading.Event = field(default_factory=threading.Event, compare=False)


def open_image(root: Path, tag: str, *, limit: int, digest: str = "") -> Image:
    """Find the image ``tag`` (empty: the only one) of the layout in ``root``, for this architecture.

    ``limit`` is how many bytes of a layer are unpacked at most; with ``digest`` it must be that very image,
    whatever its tag is now.

    Raises:
        StorageError: no layout, no such tag, a broken or foreign image.
    """
    if not (root / "oci-layout").is_file():
        raise StorageError("", f"{root} is not an OCI image layout (no oci-layout file)")
    candidates = _objects(json_object(_index(root / "index.json"), root / "index.json").get("manifests"))
    if digest:
        candidates = [m for m in candidates if m.get("digest") == digest] or candidates
    elif tag:
        candidates = [m for m in candidates if _annotation(m) == tag]
    if not candidates:
        raise StorageError("", f"{root} has no image {tag!r}" if tag else f"{root} has no image")
    if len(candidates) > 1:
        candidates = [for_this_machine(candidates, root)]
    entry = candidates[0]
    while entry.get("mediaType") in (_INDEX, _DOCKER_INDEX):
        nested = _json_blob(root, descriptor(entry, root))
        entry = for_this_machine(_objects(nested.get("manifests")), root)
    chosen = descriptor(entry, root)
    if digest and chosen.digest != digest:
        raise StorageError("", f"{root} has the image {chosen.digest}, and not {digest}")
    manifest = _json_blob(root, chosen)
    layers = tuple(descriptor(layer, root) for layer in _objects(manifest.get("layers")))
    if not layers:
        raise StorageError("", f"image {tag or chosen.digest} of {root} has no layers")
    if len(layers) > _MAX_LAYERS:
        raise StorageError("", f"the image has {len(layers)} layers; at most {_MAX_LAYERS} are taken")
    return Image(root, chosen.digest, layers, limit)


def list_files(image: Image, folder: str) -> tuple[str, ...]:
    """Regular files directly in ``folder`` of the image, after all layers, sorted."""
    prefix = _normal(folder)
    seen: dict[str, bool] = {}
    for layer in image.layers:
        with _layer(image, layer) as found:
            for member in found:
                _go_on(image)
                _apply(seen, prefix, _normal(member.path), regular=member.regular)
    return tuple(sorted(name for name, regular in seen.items() if regular))


def extract(image: Image, name: str, destination: Path, *, limit: int) -> None:
    """Write the regular file ``name`` of the image to ``destination``, at most ``limit`` bytes.

    Sparse where the file is: runs of zeros become holes.

    Raises:
        StorageError: no such regular file, or it is larger than ``limit``.
    """
    wanted = _normal(name)
    for layer in reversed(image.layers):
        hidden = False
        with _layer(image, layer) as found:
            for member in found:
                _go_on(image)
                path = _normal(member.path)
                if path == wanted:
                    _copy(member, wanted, destination, limit, image.stop)
                    return
                hidden = hidden or _hides(path, wanted)
        if hidden:
            break
    raise StorageError("", f"the image has no file /{wanted}")


def _go_on(image: Image) -> None:
    if image.stop.is_set():
        raise StorageError("", "reading the image was given up")


def _copy(member: Member, name: str, destination: Path, limit: int, stop: threading.Event) -> None:
    if not member.regular:
        raise StorageError("", f"/{name} in the image is not a regular file")
    if member.size > limit:
        raise StorageError("", f"/{name} has {member.size} bytes; at most {limit} are taken")
    zeros = bytes(_CHUNK)
    try:
        with destination.open("wb") as out:
            while chunk := member.read(_CHUNK):
                if stop.is_set():
                    raise StorageError("", f"taking out /{name} was given up")
                if chunk == zeros[: len(chunk)]:
                    out.seek(len(chunk), io.SEEK_CUR)
                else:
                    out.write(chunk)
            out.truncate(member.size)
    except OSError as error:
        raise StorageError("", f"cannot write {destination}: {error.strerror}") from error


def _apply(seen: dict[str, bool], folder: str, path: str, *, regular: bool) -> None:
    """Note what a member does to the names directly in ``folder``."""
    parent, _, leaf = path.rpartition("/")
    if leaf == _OPAQUE:
        if folder == parent or folder.startswith(f"{parent}/") or not parent:
            seen.clear()
    elif leaf.startswith(_WHITEOUT):
        gone = f"{parent}/{leaf.removeprefix(_WHITEOUT)}".lstrip("/")
        if folder == gone or folder.startswith(f"{gone}/"):
            seen.clear()
        seen.pop(gone, None)
    elif parent == folder:
        seen[path] = regular
        if len(seen) > _MAX_LISTED:
            raise StorageError("", f"the image has more than {_MAX_LISTED} files in /{folder}")


def _hides(path: str, wanted: str) -> bool:
    leaf = path.rpartition("/")[2]
    if leaf == _OPAQUE:
        return not _parent(path) or wanted.startswith(f"{_parent(path)}/")
    if leaf.startswith(_WHITEOUT):
        gone = f"{_parent(path)}/{leaf.removeprefix(_WHITEOUT)}".lstrip("/")
        return wanted == gone or wanted.startswith(f"{gone}/")
    return False


def _normal(name: str) -> str:
    return "/".join(part for part in PurePosixPath(name).parts if part not in {"/", "."})


def _parent(path: str) -> str:
    return path.rpartition("/")[0]


@contextmanager
def _layer(image: Image, layer: Descriptor) -> Iterator[Iterator[Member]]:
    """The members of a layer; its digest is checked before the first of them is believed."""
    path = _verified(image.root, layer)
    try:
        with ExitStack() as stack:
            raw = stack.enter_context(path.open("rb"))
            magic = raw.read(4)
            raw.seek(0)
            stream: Readable = raw
            if magic[:2] == b"\x1f\x8b":
                stream = gzip.GzipFile(fileobj=raw)
            if magic == b"\x28\xb5\x2f\xfd":
                # Opened anew, for the program begins where the descriptor is, and ours has read ahead.
                packed = stack.enter_context(path.open("rb", buffering=0))
                stream = stack.enter_context(output_of(_ZSTD, packed, limits=_ZSTD_LIMITS))
            yield members(stream, limit=image.limit)
    except (EOFError, zlib.error, gzip.BadGzipFile, CommandFailed) as error:
        raise StorageError("", f"layer {layer.digest} cannot be read: {error}") from error
    except StorageError as error:
        raise StorageError("", f"layer {layer.digest}: {error.message}") from error


def _verified(root: Path, wanted: Descriptor) -> Path:
    path = root / "blobs" / "sha256" / wanted.digest.removeprefix("sha256:")
    digest = hashlib.sha256()
    size = 0
    try:
        with path.open("rb") as blob:
            while chunk := blob.read(_CHUNK):
                digest.update(chunk)
                size += len(chunk)
    except OSError as error:
        raise StorageError("", f"blob {wanted.digest} of {root} cannot be read: {error.strerror}") from error
    if f"sha256:{digest.hexdigest()}" != wanted.digest or size != wanted.size:
        raise StorageError("", f"blob {wanted.digest} of {root} does not match its digest and size")
    return path


def _index(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            text = file.read(_MAX_JSON + 1)
    except OSError as error:
        raise StorageError("", f"{path}: {error.strerror}") from error
    if len(text) > _MAX_JSON:
        raise StorageError("", f"{path} is larger than {_MAX_JSON} bytes")
    return text


def _objects(value: object) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _json_blob(root: Path, wanted: Descriptor) -> dict[str, Any]:
    if wanted.size > _MAX_JSON:
        raise StorageError("", f"manifest {wanted.digest} is larger than {_MAX_JSON} bytes")
    path = _verified(root, wanted)
    return json_object(path.read_bytes(), path)


def json_object(text: bytes, path: Path | str) -> dict[str, Any]:
    """The object that a stranger's ``text`` holds; ``path`` names it in errors. Raises StorageError."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise StorageError("", f"{path} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise StorageError("", f"{path} does not hold a JSON object")
    return value


def descriptor(value: Any, root: Path | str) -> Descriptor:
    """Read a descriptor of a manifest or index; raises StorageError."""
    digest = value.get("digest") if isinstance(value, dict) else None
    size = value.get("size") if isinstance(value, dict) else None
    if not isinstance(digest, str) or not _DIGEST.match(digest) or not isinstance(size, int):
        raise StorageError("", f"{root} holds a descriptor without a sha256 digest and size")
    return Descriptor(digest, size, str(value.get("mediaType", "")))


def for_this_machine(manifests: list[dict[str, Any]], root: Path | str) -> dict[str, Any]:
    """The entry of an index whose architecture is this machine's; raises StorageError."""
    arch = _ARCH.get(platform.machine(), platform.machine())
    fitting = [m for m in manifests if _architecture(m, arch) == arch]
    if not fitting:
        raise StorageError("", f"{root} has no image for {arch}")
    return fitting[0]


def _architecture(manifest: dict[str, Any], default: str) -> object:
    platform_of = manifest.get("platform")
    return platform_of.get("architecture", default) if isinstance(platform_of, dict) else default


def _annotation(manifest: dict[str, Any]) -> object:
    annotations = manifest.get("annotations")
    return annotations.get(_REF_NAME) if isinstance(annotations, dict) else None
