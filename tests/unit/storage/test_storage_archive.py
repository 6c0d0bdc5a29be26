# SPDX-License-Identifier: Apache-2.0
"""Disks out of OCI archives, from the file to the instance's folder."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest

from launcher.errors import StorageError
from launcher.plan.media.material import Material
from launcher.plan.steps import FetchContainerDisk
from launcher.spec.model import Devices, DomainSpec, VirtualMachineInstance, VirtualMachineInstanceSpec
from launcher.storage.executor import StorageExecutor
from launcher.storage.limits import StorageSettings

VMI = VirtualMachineInstance(spec=VirtualMachineInstanceSpec(domain=DomainSpec(devices=Devices())))
DISK = bytes(range(256)) * 64


def layout(folder: Path, disks: dict[str, bytes]) -> Path:
    """A layout with an image for each tag."""
    blobs = folder / "blobs" / "sha256"
    blobs.mkdir(parents=True)

    def blob(data: bytes, kind: str) -> dict[str, Any]:
        digest = hashlib.sha256(data).hexdigest()
        (blobs / digest).write_bytes(data)
        return {
            "mediaType": f"application/vnd.oci.image.{kind}",
            "digest": f"sha256:{digest}",
            "size": len(data),
        }

    entries = []
    for tag, disk in disks.items():
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w") as archive:
            info = tarfile.TarInfo("disk/any.img")
            info.size = len(disk)
            archive.addfile(info, io.BytesIO(disk))
        diff = f"sha256:{hashlib.sha256(out.getvalue()).hexdigest()}"
        config = {
            "architecture": "amd64",
            "os": "linux",
            "rootfs": {"type": "layers", "diff_ids": [diff]},
        }
        manifest = {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": blob(json.dumps(config).encode(), "config.v1+json"),
            "layers": [blob(gzip.compress(out.getvalue(), mtime=0), "layer.v1.tar+gzip")],
        }
        entry = blob(json.dumps(manifest).encode(), "manifest.v1+json")
        entry["annotations"] = {"org.opencontainers.image.ref.name": tag}
        entries.append(entry)
    (folder / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": entries}))
    (folder / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    return folder


def packed(folder: Path, path: Path) -> None:
    with tarfile.open(path, "w") as archive:
        for entry in sorted(folder.iterdir()):
            archive.add(entry, entry.name)


async def fetch(settings: StorageSettings, instance: str, image: str, **more: Any) -> FetchContainerDisk:
    path = settings.state_dir / "instances" / instance / "v.base"
    step = FetchContainerDisk(owner=instance, volume="v", image=image, path=str(path), **more)
    made = await StorageExecutor(settings).make(step, Material(vmi=VMI, uuid="u"))
    assert isinstance(made, FetchContainerDisk)
    return made


@pytest.fixture
def settings(tmp_path: Path) -> StorageSettings:
    return StorageSettings(state_dir=tmp_path / "state", run_dir=tmp_path / "run")


async def test_each_tag_of_an_archive_gives_its_disk(settings: StorageSettings, tmp_path: Path) -> None:
    archive = tmp_path / "images.tar"
    packed(layout(tmp_path / "layout", {"one": DISK, "two": DISK[::-1]}), archive)
    first = await fetch(settings, "a", f"oci-archive:{archive}:one")
    second = await fetch(settings, "b", f"oci-archive:{archive}:two")
    assert Path(first.path).read_bytes() == DISK
    assert Path(second.path).read_bytes() == DISK[::-1]
    assert first.digest != second.digest
    assert not list(settings.pulls.glob("*")), "what it was unpacked to is gone"
    with pytest.raises(StorageError, match=r"volume 'v': .* has no image 'three'"):
        await fetch(settings, "c", f"oci-archive:{archive}:three")


async def test_one_that_skopeo_wrote(settings: StorageSettings, tmp_path: Path) -> None:
    source, archive = layout(tmp_path / "layout", {"one": DISK}), tmp_path / "image.tar"
    argv = ["skopeo", "copy", "-q", f"oci:{source}:one", f"oci-archive:{archive}:tag"]
    subprocess.run(argv, check=True, capture_output=True)
    for number, image in enumerate((f"oci-archive:{archive}:tag", f"oci-archive:{archive}")):
        assert Path((await fetch(settings, str(number), image)).path).read_bytes() == DISK


async def test_an_archive_is_unpacked_once_and_again_when_it_changes(
    settings: StorageSettings, tmp_path: Path
) -> None:
    archive = tmp_path / "image.tar"
    packed(layout(tmp_path / "old", {"one": DISK}), archive)
    first = await fetch(settings, "a", f"oci-archive:{archive}")
    second = await fetch(settings, "b", f"oci-archive:{archive}")
    assert Path(first.path).stat().st_ino == Path(second.path).stat().st_ino
    new = tmp_path / "new.tar"
    packed(layout(tmp_path / "new", {"one": DISK[::-1]}), new)
    shutil.move(new, archive)
    third = await fetch(settings, "c", f"oci-archive:{archive}")
    assert Path(third.path).read_bytes() == DISK[::-1]
    # A migration brings the overlay of the first, which fits no other.
    kept = await fetch(settings, "d", f"oci-archive:{archive}", digest=first.digest)
    assert Path(kept.path).read_bytes() == DISK


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda path: path.unlink(), "No such file"),
        (lambda path: path.write_bytes(b"\xff" * 1024), "no tar archive|out of range"),
        (lambda path: path.write_bytes(path.read_bytes()[:6000]), "ends in the middle|cannot be read"),
        (lambda path: path.write_bytes(b""), "not an OCI image layout"),
    ],
)
async def test_a_broken_archive_is_refused(
    settings: StorageSettings, tmp_path: Path, spoil: Any, says: str
) -> None:
    archive = tmp_path / "image.tar"
    packed(layout(tmp_path / "layout", {"one": DISK}), archive)
    spoil(archive)
    with pytest.raises(StorageError, match=f"volume 'v': .*(?:{says})"):
        await fetch(settings, "a", f"oci-archive:{archive}")
    assert [path for path in settings.state_dir.rglob("*") if path.is_file()] == []
