# SPDX-License-Identifier: Apache-2.0
"""What differs between the guest architectures, as data. Decides nothing: defaults and rules do."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """One guest architecture.

    ``machine`` is the default machine type and ``machines`` the prefixes of those accepted. ``*_bus`` are
    the buses of devices that name none, ``disk_buses`` those a disk can have. ``cpu_model`` overrides the
    node's default and is then the only one accepted. ``efi`` means that UEFI is the default firmware;
    ``secure_boot`` is what an absent ``secureBoot`` means; ``bootloaders`` lists what can be asked for.
    ``max_vcpus`` is the most that KVM and QEMU's machine types take. ``watchdog`` is the model of watchdog it
    has, empty for none. ``page_sizes`` are those of huge pages in bytes; empty means that any power of two is
    left for the node to check. ``usb`` says whether it can have a USB controller.
    """

    name: str
    machine: str
    machines: tuple[str, ...]
    acpi: bool
    cpu_model: str = ""
    efi: bool = False
    secure_boot: bool = True
    bootloaders: tuple[str, ...] = ("bios", "efi")
    disk_bus: str
    cdrom_bus: str
    lun_bus: str = "scsi"
    input_bus: str = "usb"
    disk_buses: tuple[str, ...]
    usb: bool = True
    cpu_hotplug: bool = True
    memory_hotplug: bool = False
    max_vcpus: int
    max_threads_dedicated: int = 2
    numa_passthrough: bool = True
    smm: bool = False
    hyperv: bool = True
    watchdog: str = ""
    sound: bool = False
    panic: bool = True
    videos: tuple[str, ...]
    max_block_size: int = 2 * 1024 * 1024
    page_sizes: tuple[int, ...] = ()


AMD64 = Architecture(
    name="amd64",
    machine="q35",
    machines=("q35", "pc-q35"),
    acpi=True,
    disk_bus="sata",
    cdrom_bus="sata",
    disk_buses=("virtio", "sata", "scsi", "usb"),
    # What KVM has room for unless the kernel was built for more (KVM_MAX_VCPUS).
    max_vcpus=1024,
    memory_hotplug=True,
    smm=True,
    watchdog="i6300esb",
    sound=True,
    videos=("vga", "cirrus", "virtio", "ramfb", "bochs"),
    page_sizes=(2 * 1024 * 1024, 1024 * 1024 * 1024),
)

ARM64 = Architecture(
    name="arm64",
    machine="virt",
    machines=("virt",),
    acpi=True,
    cpu_model="host-passthrough",
    efi=True,
    secure_boot=False,
    bootloaders=("efi",),
    disk_bus="virtio",
    # QEMU has no CD-ROM on virtio-blk, so the bus of disks would not do here.
    cdrom_bus="scsi",
    disk_buses=("virtio", "scsi"),
    cpu_hotplug=False,
    max_vcpus=512,
    max_threads_dedicated=1,
    videos=("virtio", "ramfb"),
)

S390X = Architecture(
    name="s390x",
    machine="s390-ccw-virtio",
    machines=("s390-ccw-virtio",),
    acpi=False,
    bootloaders=("bios",),
    disk_bus="virtio",
    cdrom_bus="scsi",
    input_bus="virtio",
    disk_buses=("virtio", "scsi"),
    usb=False,
    max_vcpus=248,
    numa_passthrough=False,
    hyperv=False,
    watchdog="diag288",
    panic=False,
    videos=("virtio",),
    # s390 guests see blocks of at most one page (KubeVirt refuses more, too).
    max_block_size=4096,
)

ARCHITECTURES: dict[str, Architecture] = {known.name: known for known in (AMD64, ARM64, S390X)}


def architecture(name: str | None) -> Architecture:
    """The architecture ``name``; amd64 for one that is not known, which the rules refuse."""
    return ARCHITECTURES.get(name or "", AMD64)
