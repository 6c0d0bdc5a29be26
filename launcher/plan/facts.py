# SPDX-License-Identifier: Apache-2.0
"""A frozen picture of the host that planning decides from. Records only: nothing is probed here.

An empty tuple or ``None`` means "not known", never "nothing": planning then assumes the host can do what is
asked and leaves the refusal to libvirt. ``launcher.domain.caps`` makes these records from libvirt's XML.
"""

from __future__ import annotations

import msgspec

from launcher.plan.arch import AMD64, ARCHITECTURES, ArchTraits

# The newest releases whose XML formats are known here; assumed when nothing is known of a host.
NEWEST_LIBVIRT = 12_008_000
NEWEST_QEMU = 10_002_000


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of all records of facts."""


class HostCPU(Record, frozen=True, kw_only=True):
    """A logical CPU; ``siblings`` are the CPUs of its core, itself included, in the host's order."""

    id: int
    siblings: tuple[int, ...] = ()


class Distance(Record, frozen=True, kw_only=True):
    """The distance to the NUMA cell ``cell`` (10 is local, as ACPI's SLIT has it)."""

    cell: int
    value: int


class PagePool(Record, frozen=True, kw_only=True):
    """``count`` pages of ``size`` bytes that a NUMA cell has."""

    size: int
    count: int


class NumaCell(Record, frozen=True, kw_only=True):
    """One NUMA cell, CPUs in the order that libvirt reports; ``memory`` in bytes."""

    id: int
    cpus: tuple[HostCPU, ...] = ()
    memory: int = 0
    distances: tuple[Distance, ...] = ()
    pools: tuple[PagePool, ...] = ()


class FirmwareTarget(Record, frozen=True, kw_only=True):
    """Machines (globs such as ``pc-q35-*``) of a libvirt architecture that a firmware image runs on."""

    arch: str
    machines: tuple[str, ...] = ()


class Firmware(Record, frozen=True, kw_only=True):
    """One firmware descriptor, in QEMU's interop words (docs/interop/firmware.json).

    ``device`` is ``flash`` or ``memory``; ``features`` hold ``secure-boot``, ``enrolled-keys``,
    ``requires-smm``, ``amd-sev``, ``amd-sev-es``, ``amd-sev-snp``, ``intel-tdx`` …; ``interfaces`` hold
    ``uefi`` or ``bios``. Descriptors are kept in the order of their priority.
    """

    executable: str
    format: str = "raw"
    device: str = "flash"
    nvram_template: str = ""
    nvram_format: str = "raw"
    targets: tuple[FirmwareTarget, ...] = ()
    features: tuple[str, ...] = ()
    interfaces: tuple[str, ...] = ("uefi",)


class GuestFacts(Record, frozen=True, kw_only=True):
    """What the host runs for one libvirt architecture."""

    arch: str
    emulator: str = ""
    machines: tuple[str, ...] = ()
    kvm: bool = True


class DomainCaps(Record, frozen=True, kw_only=True):
    """Domain capabilities of one architecture and domain type (``kvm`` or ``qemu``).

    ``cpu_models`` are the usable named models, ``enums`` the values of ``<enum>`` elements by
    ``ELEMENT.NAME`` (``video.modelType``), ``features`` the names of supported entries of
    ``<features>`` (``sev``, ``backup`` …) and ``hyperv`` the Hyper-V features.
    """

    arch: str
    virt: str
    machine: str = ""
    emulator: str = ""
    max_vcpus: int | None = None
    cpu_modes: tuple[str, ...] = ()
    host_model: str = ""
    cpu_models: tuple[str, ...] = ()
    enums: dict[str, tuple[str, ...]] = {}
    features: tuple[str, ...] = ()
    unsupported_features: tuple[str, ...] = ()
    hyperv: tuple[str, ...] = ()


class NodeFacts(Record, frozen=True, kw_only=True):
    """Everything planning knows of the node.

    ``arch`` is the API's word for the host's architecture; ``kvm_usable`` says that a guest of that
    architecture can really run under KVM (a /dev/kvm that opens is not enough). Versions are libvirt's
    integers: 9.0.0 is 9000000. ``memory_locking``: QEMU may lock all its memory.
    """

    arch: str = AMD64.name
    node: str = ""
    kvm_usable: bool = True
    libvirt_version: int = NEWEST_LIBVIRT
    qemu_version: int = NEWEST_QEMU
    cells: tuple[NumaCell, ...] = ()
    guests: tuple[GuestFacts, ...] = ()
    domain_caps: tuple[DomainCaps, ...] = ()
    firmwares: tuple[Firmware, ...] = ()
    memory_locking: bool = False

    def libvirt_at_least(self, major: int, minor: int = 0) -> bool:
        """Whether libvirt is at least that release."""
        return self.libvirt_version >= version(major, minor)

    def qemu_at_least(self, major: int, minor: int = 0) -> bool:
        """Whether QEMU is at least that release."""
        return self.qemu_version >= version(major, minor)

    def guest(self, arch: ArchTraits) -> GuestFacts | None:
        """What the host runs for ``arch``; None when it does not say or does not run it."""
        return next((guest for guest in self.guests if guest.arch == arch.libvirt), None)

    def runs(self, arch: ArchTraits) -> bool:
        """Whether the host has an emulator for ``arch``, as far as it is known."""
        return not self.guests or self.guest(arch) is not None

    def kvm(self, arch: ArchTraits) -> bool:
        """Whether a guest of ``arch`` can run under KVM here."""
        if not self.kvm_usable:
            return False
        guest = self.guest(arch)
        if guest is not None:
            return guest.kvm
        return not self.guests and arch.name == self.arch

    def caps(self, arch: ArchTraits, virt: str) -> DomainCaps | None:
        """Domain capabilities for ``arch`` under ``virt``, when they are known."""
        return next((c for c in self.domain_caps if c.arch == arch.libvirt and c.virt == virt), None)


def version(major: int, minor: int = 0, micro: int = 0) -> int:
    """A release as libvirt writes it in one integer: ``version(9, 6) == 9006000``."""
    return major * 1_000_000 + minor * 1_000 + micro


def assumed_facts(arch: str = AMD64.name) -> NodeFacts:
    """A host of the API architecture ``arch`` that has KVM and can do all that is asked."""
    return NodeFacts(arch=ARCHITECTURES.get(arch, AMD64).name)
