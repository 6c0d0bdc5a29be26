# SPDX-License-Identifier: Apache-2.0
"""The playground's guests as local OCI image layouts, built once and kept in a cache folder.

A folder's name holds a hash of everything it was made from; it appears by a rename, under a lock, so two
builders at once cannot harm each other.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from launcher.lab import capabilities_cache, cpio, guest_files, oci, vmlinux
from launcher.lab.oci import LayerFile

KERNEL_PATH = "/boot/vmlinux"
BZIMAGE_PATH = "/boot/vmlinuz"
INITRD_PATH = "/boot/initrd"
DISK_PATH = "/disk/disk.img"
"""Where a containerDisk's disk lies: the API has it in /disk, under any name."""

KEEP_S = 7 * 24 * 3600.0
"""How long an image of other sources stays in the cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """A local OCI image layout."""

    folder: Path

    @property
    def reference(self) -> str:
        """As skopeo and manifests spell it."""
        return f"oci:{self.folder}:{oci.TAG}"


def guest(cache: Path | None = None) -> Image:
    """The Linux guest, for ``firmware.kernelBoot.container`` with ``KERNEL_PATH`` and ``INITRD_PATH``.

    See ``guest/init`` for its kernel arguments. It needs 112 MiB of memory and boots in some 5 s emulated.

    Raises:
        HostUnsupported, CommandFailed: the packages cannot be had or a build step failed.
    """
    packages = guest_files.packages()

    def build(scratch: Path) -> Sequence[LayerFile]:
        files = guest_files.linux(packages, scratch)
        return [
            LayerFile(path=KERNEL_PATH, data=files.vmlinux),
            LayerFile(path=INITRD_PATH, data=files.initrd),
        ]

    return _cached("guest", _key(repr(packages)), cache, build)


def uefi_guest(cache: Path | None = None) -> Image:
    """The Linux guest with a kernel that UEFI can boot, ``BZIMAGE_PATH``; the rest is as in ``guest``."""
    packages = guest_files.packages()

    def build(scratch: Path) -> Sequence[LayerFile]:
        files = guest_files.linux(packages, scratch)
        return [
            LayerFile(path=BZIMAGE_PATH, data=files.bzimage),
            LayerFile(path=INITRD_PATH, data=files.initrd),
        ]

    return _cached("uefi-guest", _key(repr(packages)), cache, build)


def bootsector(cache: Path | None = None) -> Image:
    """A guest of one boot sector, as a containerDisk: it ticks after 0.6 s and needs 16 MiB of memory."""

    def build(scratch: Path) -> Sequence[LayerFile]:
        return [LayerFile(path=DISK_PATH, data=guest_files.boot_disk(scratch))]

    return _cached("bootsector", _key(), cache, build)


def boot_disk(folder: Path) -> Path:
    """The disk of ``bootsector`` as the file ``bootsector.img`` in ``folder``, for use without an image."""
    disk = folder / "bootsector.img"
    with tempfile.TemporaryDirectory() as scratch:
        disk.write_bytes(guest_files.boot_disk(Path(scratch)))
    return disk


def _key(extra: str = "") -> str:
    """Sixteen digits that change when the sources, the builder or ``extra`` do."""
    modules = [Path(str(module.__file__)) for module in (cpio, guest_files, oci, vmlinux)]
    found = hashlib.sha256(extra.encode())
    for source in [*sorted(guest_files.SOURCES.iterdir()), *modules]:
        if source.is_file():
            found.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    return found.hexdigest()[:16]


def _cached(name: str, key: str, cache: Path | None, build: Callable[[Path], Sequence[LayerFile]]) -> Image:
    images = (cache or capabilities_cache.default_folder()) / "images"
    images.mkdir(parents=True, exist_ok=True)
    finished = images / f"{name}-{key}"
    if finished.exists():
        return Image(folder=finished)
    with (
        _locked(images / f".{name}.lock"),
        tempfile.TemporaryDirectory(dir=images, prefix=".new-") as scratch,
    ):
        if not finished.exists():
            layout = Path(scratch) / "layout"
            layout.mkdir()
            oci.write_layout(layout, build(Path(scratch)))
            layout.rename(finished)
            _remove_old(images, name)
    return Image(folder=finished)


def _remove_old(images: Path, name: str) -> None:
    """Forget images that were made long ago from other sources; a lab may still use a younger one."""
    for folder in images.glob(f"{name}-*"):
        if time.time() - folder.stat().st_mtime > KEEP_S:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """One builder at a time; the lock goes with the process that holds it."""
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
