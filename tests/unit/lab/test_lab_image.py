# SPDX-License-Identifier: Apache-2.0
"""Images are built once, replaced when their sources change, and what was learned of QEMU is kept."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from launcher.lab import capabilities_cache, guest_files, image


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the guest's sources that a test may change."""
    copied = tmp_path / "sources"
    shutil.copytree(guest_files.SOURCES, copied)
    monkeypatch.setattr(guest_files, "SOURCES", copied)
    return copied


def test_an_image_is_built_once_and_again_for_other_sources(sources: Path, tmp_path: Path) -> None:
    first = image.bootsector(tmp_path / "cache")
    stamp = (first.folder / "index.json").stat().st_mtime_ns
    assert image.bootsector(tmp_path / "cache") == first
    assert (first.folder / "index.json").stat().st_mtime_ns == stamp
    (sources / "bootsector.S").write_text(
        (sources / "bootsector.S").read_text().replace("GUEST UP", "GUEST ON")
    )
    assert image.bootsector(tmp_path / "cache") != first


def test_old_images_go_and_young_ones_stay(sources: Path, tmp_path: Path) -> None:
    images = tmp_path / "cache/images"
    for name, age_s in (("bootsector-old", image.KEEP_S + 60), ("bootsector-young", 60), ("guest-old", 1e9)):
        (images / name).mkdir(parents=True)
        before = (images / name).stat().st_mtime - age_s
        os.utime(images / name, (before, before))
    built = image.bootsector(tmp_path / "cache")
    found = {folder.name for folder in images.iterdir() if folder.is_dir()}
    assert found == {"bootsector-young", "guest-old", built.folder.name}


def test_a_reference_is_spelled_as_manifests_spell_it(tmp_path: Path) -> None:
    assert image.Image(folder=Path("/var/lib/x")).reference == "oci:/var/lib/x:latest"


def test_what_a_node_learned_is_there_for_the_next(tmp_path: Path) -> None:
    node, other, cache = tmp_path / "node", tmp_path / "other", tmp_path / "cache"
    learned = node / capabilities_cache.SUBFOLDER
    learned.mkdir(parents=True)
    (learned / "qemu.xml").write_text("old")
    emulated = capabilities_cache.kept(cache, kvm=False)
    capabilities_cache.keep(emulated, node)
    (learned / "qemu.xml").write_text("new")
    capabilities_cache.keep(emulated, node)
    capabilities_cache.restore(emulated, other)
    assert [file.name for file in (other / capabilities_cache.SUBFOLDER).iterdir()] == ["qemu.xml"]
    assert (other / capabilities_cache.SUBFOLDER / "qemu.xml").read_text() == "new"
    kept = capabilities_cache.kept
    for unknown in (kept(cache, kvm=True), kept(cache, kvm=False, release="trixie")):
        capabilities_cache.restore(unknown, tmp_path / "fresh")
        assert not (tmp_path / "fresh").exists()
