# SPDX-License-Identifier: Apache-2.0
"""What differs between guest architectures, as one table. Pure data: nothing is decided here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchTraits:
    """Traits of one guest architecture.

    ``name`` is the API's word (``amd64``), ``libvirt`` libvirt's (``x86_64``). ``usb`` says when a USB
    controller is needed; ``pcie`` that devices sit on PCI Express root ports.
    """

    name: str
    libvirt: str
    machine: str
    cpu_hotplug: bool
    memory_hotplug: bool
    memfd: bool
    virtio: str
    virtio_transitional: str
    scsi: str
    scsi_transitional: str
    usb: Literal["needed", "always", "never"]
    smbios: bool
    vmport: bool
    disable_mpx: bool
    hint_dedicated: bool
    nic_rom: bool
    pcie: bool
    firmware_dir: str

    @property
    def emulator(self) -> str:
        """File name of QEMU's binary for this architecture."""
        return f"qemu-system-{self.libvirt}"


AMD64 = ArchTraits(
    name="amd64",
    libvirt="x86_64",
    machine="q35",
    cpu_hotplug=True,
    memory_hotplug=True,
    memfd=True,
    virtio="virtio-non-transitional",
    virtio_transitional="virtio-transitional",
    scsi="virtio-non-transitional",
    scsi_transitional="virtio-transitional",
    usb="needed",
    smbios=True,
    vmport=True,
    disable_mpx=True,
    hint_dedicated=True,
    nic_rom=True,
    pcie=True,
    firmware_dir="/usr/share/edk2/ovmf",
)

ARM64 = ArchTraits(
    name="arm64",
    libvirt="aarch64",
    machine="virt",
    cpu_hotplug=False,
    memory_hotplug=False,
    memfd=True,
    virtio="virtio-non-transitional",
    virtio_transitional="virtio-transitional",
    scsi="virtio-non-transitional",
    scsi_transitional="virtio-transitional",
    usb="always",
    smbios=True,
    vmport=False,
    disable_mpx=False,
    hint_dedicated=False,
    nic_rom=True,
    pcie=True,
    firmware_dir="/usr/share/AAVMF",
)

S390X = ArchTraits(
    name="s390x",
    libvirt="s390x",
    machine="s390-ccw-virtio",
    cpu_hotplug=True,
    memory_hotplug=False,
    memfd=False,
    virtio="virtio",
    virtio_transitional="virtio",
    scsi="virtio-scsi",
    scsi_transitional="virtio-scsi",
    usb="never",
    smbios=False,
    vmport=False,
    disable_mpx=False,
    hint_dedicated=False,
    nic_rom=False,
    pcie=False,
    firmware_dir="",
)

ARCHITECTURES: dict[str, ArchTraits] = {traits.name: traits for traits in (AMD64, ARM64, S390X)}
BY_LIBVIRT_NAME: dict[str, ArchTraits] = {traits.libvirt: traits for traits in ARCHITECTURES.values()}
