# SPDX-License-Identifier: Apache-2.0
"""Builds the guests' files: kernel and initial root from Debian packages, and a disk of one boot sector.

Nothing is cached and no image is written here (see ``image.py``); every function works in a folder handed in.
"""

from __future__ import annotations

import lzma
from dataclasses import dataclass
from pathlib import Path

from launcher.errors import HostUnsupported
from launcher.lab import command, cpio, debs, vmlinux

SOURCES = Path(__file__).parent / "guest"
KERNEL_METAPACKAGE = "linux-image-cloud-amd64"
KERNEL_PREFIX = "linux-image-"
BUSYBOX = "busybox-static"
MODULES = (
    "virtio_pci",
    "virtio_blk",
    "virtio_net",
    "virtio_console",
    "virtio_balloon",
    "virtio_mem",
    "pvpanic_mmio",
    "pvpanic_pci",
    "qemu_fw_cfg",
    "virtio_rng",
    "virtio_scsi",
    "virtio_input",
    "virtio_mem",
    "sd_mod",
    "sr_mod",
    "isofs",
    "virtiofs",
    "button",
    "evdev",
)
"""What the guest loads at boot. The cloud kernel has no SATA and no e1000: give it virtio devices."""

BOOT_DISK_SIZE = 1 << 20
"""SeaBIOS does not boot from a much smaller disk."""

_MODULE_NAME_TABLE = str.maketrans("-", "_")


@dataclass(frozen=True, slots=True, kw_only=True)
class Packages:
    """The Debian packages that the Linux guest consists of."""

    kernel: debs.Package
    busybox: debs.Package


def packages() -> Packages:
    """What apt offers now."""
    name = debs.dependency(KERNEL_METAPACKAGE, KERNEL_PREFIX)
    kernel, busybox = debs.candidates(name, BUSYBOX)
    return Packages(kernel=kernel, busybox=busybox)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinuxFiles:
    """``vmlinux`` is the kernel as an ELF file for PVH (the fastest start), ``bzimage`` as it is packaged
    (UEFI boots no other)."""

    vmlinux: bytes
    bzimage: bytes
    initrd: bytes


def linux(wanted: Packages, scratch: Path) -> LinuxFiles:
    """The kernel and the initial root of the Linux guest."""
    kernel_root = debs.unpack(wanted.kernel, scratch)
    busybox_root = debs.unpack(wanted.busybox, scratch)
    release = wanted.kernel.name.removeprefix(KERNEL_PREFIX)
    bzimage = (kernel_root / "boot" / f"vmlinuz-{release}").read_bytes()
    busybox = _first(busybox_root, "bin/busybox", "usr/bin/busybox")
    entries = [
        *(cpio.folder(name) for name in ("bin", "dev", "etc", "etc/acpi", "etc/acpi/PWRF", "modules")),
        cpio.character_device("dev/console", 5, 1),
        cpio.file("bin/busybox", busybox.read_bytes(), executable=True),
        cpio.link("bin/sh", "busybox"),
        cpio.file("bin/workload", _workload(scratch), executable=True),
        cpio.file("init", (SOURCES / "init").read_bytes(), executable=True),
        cpio.file("etc/udhcpc", (SOURCES / "udhcpc").read_bytes(), executable=True),
        # acpid runs the file named after the event's device and number.
        cpio.file("etc/acpi/PWRF/00000080", (SOURCES / "poweroff").read_bytes(), executable=True),
        *_modules(kernel_root, release),
    ]
    return LinuxFiles(vmlinux=vmlinux.extract(bzimage), bzimage=bzimage, initrd=cpio.archive(entries))


def boot_disk(scratch: Path) -> bytes:
    """A raw disk whose only content is the boot sector guest."""
    objects, sector = scratch / "bootsector.o", scratch / "bootsector.bin"
    command.run(["as", "--32", "-o", objects, SOURCES / "bootsector.S"])
    link = ["ld", "-m", "elf_i386", "-Ttext", "0x7c00", "--oformat", "binary"]
    command.run([*link, "-o", sector, objects])
    return sector.read_bytes().ljust(BOOT_DISK_SIZE, b"\0")


def _workload(scratch: Path) -> bytes:
    program = scratch / "workload"
    command.run(["gcc", "-O2", "-Wall", "-static", "-s", "-o", program, SOURCES / "workload.c"])
    return program.read_bytes()


def _modules(root: Path, release: str) -> list[cpio.Entry]:
    """The modules' files, and ``modules/order``: their names, each after all that it needs."""
    if not (root / "lib").exists():
        (root / "lib").symlink_to("usr/lib")  # Debian 13's packages know only /usr/lib
    command.run(["depmod", "-b", root, release])
    base = root / "lib" / "modules" / release
    needs: dict[str, list[str]] = {}
    for line in (base / "modules.dep").read_text().splitlines():
        path, _, dependencies = line.partition(":")
        needs[path] = dependencies.split()
    paths = {_module_name(path): path for path in needs}
    order: list[str] = []
    for name in MODULES:
        if name in paths:  # a module that is built in has no file
            # modules.dep(5) lists the direct dependencies first: load from the end.
            steps = (*reversed(needs[paths[name]]), paths[name])
            order += [step for step in steps if step not in order]
    files = [cpio.file(f"modules/{_module_name(path)}.ko", _unpacked(base / path)) for path in order]
    names = "".join(f"{_module_name(path)}.ko\n" for path in order)
    return [*files, cpio.file("modules/order", names.encode())]


def _module_name(path: str) -> str:
    return Path(path).name.partition(".ko")[0].translate(_MODULE_NAME_TABLE)


def _unpacked(module: Path) -> bytes:
    data = module.read_bytes()
    match module.suffix:
        case ".ko":
            return data
        case ".xz":
            return lzma.decompress(data)
        case ".zst":
            return command.run(["zstd", "-dc"], stdin=data)
        case other:
            raise HostUnsupported("a known module format", f"{module.name} is packed as {other}")


def _first(root: Path, *names: str) -> Path:
    for name in names:
        if (root / name).exists():
            return root / name
    raise HostUnsupported("a known package layout", f"{root.name} has none of {', '.join(names)}")
