# SPDX-License-Identifier: Apache-2.0
"""Container images for tests, good and bad, and a real registry on loopback that serves them."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import shutil
import socket
import subprocess
import tarfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

MIB = 1 << 20
USER, PASSWORD = "tester", "sesame"
# bcrypt of the password; the registry takes nothing else.
_HTPASSWD = f"{USER}:$2b$05$abcdefghijklmnopqrstuuKcS.CYWVYVaLiiCKrrc0A5s3mGesJ9O\n"
_LAYER = "application/vnd.oci.image.layer.v1.tar"
_START_TIMEOUT_S = 30.0


def tar(*entries: tuple[str, bytes], link: tuple[str, str] | None = None) -> bytes:
    """A layer of regular files and perhaps a symbolic link."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, data in entries:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
        if link is not None:
            info = tarfile.TarInfo(link[0])
            info.type, info.linkname = tarfile.SYMTYPE, link[1]
            archive.addfile(info)
    return out.getvalue()


def write_layout(folder: Path, *layers: bytes, packing: str = "gzip", tag: str = "latest") -> str:
    """An OCI layout in the new ``folder``; returns how manifests name it."""
    blobs = folder / "blobs" / "sha256"
    blobs.mkdir(parents=True)
    kind = f"{_LAYER}+{packing}" if packing else _LAYER
    packed = [_blob(blobs, _PACKERS[packing](layer), kind) for layer in layers]
    finish_layout(folder, packed, [hashlib.sha256(layer).hexdigest() for layer in layers], tag)
    return f"oci:{folder}:{tag}"


def finish_layout(folder: Path, layers: Sequence[dict[str, object]], plain: Sequence[str], tag: str) -> None:
    """Write manifest and index; ``plain`` are the digests of the layers as they are unpacked."""
    blobs = folder / "blobs" / "sha256"
    diffs = [f"sha256:{digest}" for digest in plain]
    config = {"architecture": "amd64", "os": "linux", "rootfs": {"type": "layers", "diff_ids": diffs}}
    described = _blob(blobs, json.dumps(config).encode(), "application/vnd.oci.image.config.v1+json")
    kind = "application/vnd.oci.image.manifest.v1+json"
    manifest = {"schemaVersion": 2, "mediaType": kind, "config": described, "layers": list(layers)}
    entry = _blob(blobs, json.dumps(manifest).encode(), kind)
    entry["annotations"] = {"org.opencontainers.image.ref.name": tag}
    (folder / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [entry]}))
    (folder / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')


def write_large_layout(folder: Path, size: int) -> str:
    """A layout whose disk has ``size`` bytes that no compression makes smaller, written in little memory."""
    blobs = folder / "blobs" / "sha256"
    blobs.mkdir(parents=True)
    block = hashlib.shake_256(b"disk").digest(MIB)
    scratch = folder / "layer"
    with scratch.open("wb") as raw, gzip.GzipFile("", "wb", 0, raw, mtime=0) as out:
        plain = _Hashing(out)
        info = tarfile.TarInfo("disk/disk.img")
        info.size = size
        with tarfile.open(fileobj=plain, mode="w|") as archive:
            archive.addfile(info, _Repeated(block, size))
    digest = hashlib.sha256()
    with scratch.open("rb") as packed:
        while chunk := packed.read(MIB):
            digest.update(chunk)
    name, length = digest.hexdigest(), scratch.stat().st_size
    scratch.rename(blobs / name)
    layer: dict[str, object] = {"mediaType": f"{_LAYER}+gzip", "digest": f"sha256:{name}", "size": length}
    finish_layout(folder, [layer], [plain.digest.hexdigest()], "latest")
    return f"oci:{folder}:latest"


class _Repeated(io.RawIOBase):
    """``size`` bytes of one block again and again."""

    def __init__(self, block: bytes, size: int) -> None:
        self._block, self._left = block, size

    def read(self, size: int = -1, /) -> bytes:
        count = min(size, self._left, len(self._block))
        self._left -= count
        return self._block[:count]


class _Hashing(io.RawIOBase):
    """Hands on what is written, and hashes it."""

    def __init__(self, out: gzip.GzipFile) -> None:
        self._out, self.digest = out, hashlib.sha256()

    def write(self, data: bytes, /) -> int:  # type: ignore[override]
        self.digest.update(data)
        return self._out.write(data)


def _blob(blobs: Path, data: bytes, media_type: str) -> dict[str, object]:
    digest = hashlib.sha256(data).hexdigest()
    (blobs / digest).write_bytes(data)
    return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(data)}


def _zstd(data: bytes) -> bytes:
    return subprocess.run(["zstd", "-q", "-c"], input=data, capture_output=True, check=True).stdout


_PACKERS: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "zstd": _zstd, "": bytes}


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryServer:
    """A running registry: its address ``HOST:PORT``, folder and log; with a login when ``protected``."""

    address: str
    root: Path
    log: Path
    protected: bool

    def push(self, layout: str, name: str) -> str:
        """Push a local image; returns its reference in the registry."""
        login = ["--dest-creds", f"{USER}:{PASSWORD}"] if self.protected else []
        argv = ["skopeo", "copy", "-q", "--dest-tls-verify=false", *login, layout]
        subprocess.run([*argv, f"docker://{self.address}/{name}"], check=True, capture_output=True)
        return f"{self.address}/{name}"

    def downloads(self, digest: str) -> int:
        """How often the blob ``digest`` was asked for."""
        lines = self.log.read_text(errors="replace").splitlines()
        return sum('"GET /v2/' in line and f"/blobs/{digest}" in line for line in lines)


@contextmanager
def registry(folder: Path, *, protected: bool = False) -> Iterator[RegistryServer]:
    """Debian's docker-registry on a free port of the loopback interface; ends with the block."""
    program = shutil.which("docker-registry")
    assert program is not None, "make deps installs docker-registry"
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "htpasswd").write_text(_HTPASSWD)
    config: dict[str, object] = {
        "version": "0.1",
        "storage": {"filesystem": {"rootdirectory": str(folder / "data")}},
        "http": {"addr": f"127.0.0.1:{port}"},
    }
    if protected:
        config["auth"] = {"htpasswd": {"realm": "test", "path": str(folder / "htpasswd")}}
    (folder / "config.yml").write_text(json.dumps(config))
    log = folder / "log"
    with log.open("wb") as output:
        process = subprocess.Popen([program, "serve", folder / "config.yml"], stdout=output, stderr=output)
    try:
        _wait(port, process, log)
        address = f"127.0.0.1:{port}"
        yield RegistryServer(address=address, root=folder / "data", log=log, protected=protected)
    finally:
        process.terminate()
        process.wait(10)


def _wait(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + _START_TIMEOUT_S
    while True:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < end, "the registry does not listen"
        time.sleep(0.05)
