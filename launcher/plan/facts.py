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


class Record(msgspec.Struct, frozen=True, kw_only=True):
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
    """``count`` pages of ``size`` bytes that a NUMA cell has; ``free`` None: not known."""

    size: int
    count: int
    free: int | None = None


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
    ``uefi`` or ``bios``; ``mode`` of a flash is ``split``, ``combined`` or ``stateless``. Descriptors are
    kept in the order of their priority.
    """

    executable: str
    format: str = "raw"
    device: str = "flash"
    mode: str = "split"
    nvram_template: str = ""
    nvram_format: str = "raw"
    targets: tuple[FirmwareTarget, ...] = ()
    features: tuple[str, ...] = ()
    interfaces: tuple[str, ...] = ("uefi",)


class Alias(Record, frozen=True, kw_only=True):
    """A short name of a machine (``q35``) and the versioned one that it stands for."""

    name: str
    machine: str


class GuestFacts(Record, frozen=True, kw_only=True):
    """What the host runs for one libvirt architecture; ``machines`` has aliases, too."""

    arch: str
    emulator: str = ""
    machines: tuple[str, ...] = ()
    aliases: tuple[Alias, ...] = ()
    kvm: bool = True

    def canonical(self, machine: str) -> str:
        """The versioned name of ``machine``; itself when it is no alias."""
        return next((alias.machine for alias in self.aliases if alias.name == machine), machine)


class DomainCaps(Record, frozen=True, kw_only=True):
    """Domain capabilities of one architecture, machine and domain type (``kvm`` or ``qemu``).

    ``cpu_models`` are the usable named models, ``unusable_models`` those that QEMU knows and this host
    cannot provide, ``missing_cpu_features`` what the host lacks of its model. ``enums`` are the values of
    ``<enum>`` elements by ``ELEMENT.NAME`` (``video.modelType``), ``features`` the names of supported
    entries of ``<features>`` (``sev``, ``backup`` …), ``unsupported_devices`` those of denied entries of
    ``<devices>``, and ``hyperv`` the Hyper-V features.
    """

    arch: str
    virt: str
    machine: str = ""
    emulator: str = ""
    max_vcpus: int | None = None
    cpu_modes: tuple[str, ...] = ()
    host_model: str = ""
    cpu_models: tuple[str, ...] = ()
    unusable_models: tuple[str, ...] = ()
    missing_cpu_features: tuple[str, ...] = ()
    enums: dict[str, tuple[str, ...]] = {}
    features: tuple[str, ...] = ()
    unsupported_features: tuple[str, ...] = ()
    unsupported_devices: tuple[str, ...] = ()
    hyperv: tuple[str, ...] = ()

    def denies(self, enum: str, value: str) -> bool:
        """Whether values of ``enum`` are listed, and not this one."""
        listed = self.enums.get(enum, ())
        return bool(listed) and value not in listed


class Programs(Record, frozen=True, kw_only=True):
    """Where programs lie that run beside QEMU; empty: it is not installed."""

    swtpm: str | None = None
    virtiofsd: str | None = None
    passt: str | None = None


class HostDevices(Record, frozen=True, kw_only=True):
    """Device files of the host that guests' devices need, and whether they open."""

    vhost_vsock: bool | None = None
    vhost_net: bool | None = None


class NodeFacts(Record, frozen=True, kw_only=True):
    """Everything planning knows of the node.

    ``arch`` is the API's word for the host's architecture; ``kvm_usable`` says that a guest of that
    architecture can really run under KVM (a /dev/kvm that opens is not enough), ``kvm_reason`` why not.
    Versions are libvirt's integers: 9.0.0 is 9000000. ``qemu_uid`` and ``qemu_gid`` are who QEMU runs as.
    ``cpus`` counts the CPUs online, ``memory`` is in bytes, ``smt`` says that cores run several threads.
    ``firmwares`` None: not known (then the usual file names are taken); empty: there are none.
    ``memory_locking``: QEMU may lock all its memory. ``ipv6``: the kernel speaks it. ``page_size`` is the
    kernel's default size of huge pages in bytes.
    """

    arch: str = AMD64.name
    node: str = ""
    kernel: str = ""
    kvm_usable: bool = True
    kvm_reason: str = ""
    libvirt_version: int = NEWEST_LIBVIRT
    qemu_version: int = NEWEST_QEMU
    qemu_uid: int | None = None
    qemu_gid: int | None = None
    cpus: int | None = None
    memory: int | None = None
    smt: bool | None = None
    memory_locking: bool = False
    ipv6: bool = True
    page_size: int | None = None
    programs: Programs = Programs()
    devices: HostDevices = HostDevices()
    cells: tuple[NumaCell, ...] = ()
    guests: tuple[GuestFacts, ...] = ()
    domain_caps: tuple[DomainCaps, ...] = ()
    firmwares: tuple[Firmware, ...] | None = None

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

    def caps(self, arch: ArchTraits, virt: str, machine: str = "") -> DomainCaps | None:
        """Domain capabilities for ``arch`` under ``virt``: those of ``machine``, or else of the first machine
        that was asked about; None when none are known."""
        found = [c for c in self.domain_caps if c.arch == arch.libvirt and c.virt == virt]
        guest = self.guest(arch)
        names = {machine, guest.canonical(machine) if guest is not None else machine}
        return next((c for c in found if c.machine in names), found[0] if found else None)


def version(major: int, minor: int = 0, micro: int = 0) -> int:
    """A release as libvirt writes it in one integer: ``version(9, 6) == 9006000``."""
    return major * 1_000_000 + minor * 1_000 + micro


def assumed_facts(arch: str = AMD64.name) -> NodeFacts:
    """A host of the API architecture ``arch`` that has KVM and can do all that is asked."""
    return NodeFacts(arch=ARCHITECTURES.get(arch, AMD64).name)
