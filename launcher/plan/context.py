# SPDX-License-Identifier: Apache-2.0
"""What every planning function is given: the inputs, and the few values all of them derive from. Pure."""

from __future__ import annotations

from math import floor

import msgspec
from msgspec.structs import replace

from launcher.errors import Bug, HostUnsupported
from launcher.plan import versions
from launcher.plan.allocations import Allocations
from launcher.plan.arch import AMD64, ARCHITECTURES, ArchTraits
from launcher.plan.facts import NodeFacts
from launcher.plan.iothreads import IOThreadLayout, iothread_layout
from launcher.plan.paths import InstancePaths, instance_paths
from launcher.plan.settings import PlanSettings
from launcher.spec.model import Devices, DomainSpec, VirtualMachineInstance
from launcher.spec.quantity import Quantity

# x2APIC ids above 255 need an IOMMU that remaps interrupts (Intel VT-d specification, EIM).
_VCPUS_WITHOUT_IOMMU = 255


class Topology(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """vCPU topology with absent members taken as 1. ``max_sockets`` 0: sockets cannot be plugged."""

    sockets: int
    cores: int
    threads: int
    max_sockets: int = 0

    @property
    def per_socket(self) -> int:
        """vCPUs of one socket."""
        return self.cores * self.threads

    @property
    def current(self) -> int:
        """vCPUs that the guest starts with: what queues, threads and overhead are counted by."""
        return self.sockets * self.per_socket

    @property
    def maximum(self) -> int:
        """vCPUs that it may ever have."""
        return (self.max_sockets or self.sockets) * self.per_socket


class PlanContext(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Inputs of planning and values derived from them once.

    ``vmi`` is validated and defaulted, ``domain`` and ``devices`` are parts of it. ``virt`` is the domain's
    type; ``emulated`` says that it is TCG. ``iommu`` asks for ``iommu='on'`` at virtio devices (memory the
    host cannot read). ``memory`` is the guest's at boot, in bytes. ``high_performance``: dedicated CPUs,
    realtime or hugepages.
    """

    vmi: VirtualMachineInstance
    domain: DomainSpec
    devices: Devices
    facts: NodeFacts
    settings: PlanSettings
    allocations: Allocations
    paths: InstancePaths
    arch: ArchTraits
    virt: str
    topology: Topology
    memory: int
    iothreads: IOThreadLayout
    virtio_model: str
    scsi_model: str
    iommu: bool
    high_performance: bool

    @property
    def emulated(self) -> bool:
        """Whether the guest runs under TCG."""
        return self.virt == "qemu"

    @property
    def name(self) -> str:
        """``metadata.name``."""
        return (self.vmi.metadata.name if self.vmi.metadata else None) or ""

    @property
    def namespace(self) -> str:
        """``metadata.namespace``."""
        return (self.vmi.metadata.namespace if self.vmi.metadata else None) or "default"

    @property
    def annotations(self) -> dict[str, str]:
        """``metadata.annotations``."""
        return self.vmi.metadata.annotations if self.vmi.metadata else {}

    @property
    def dedicated(self) -> bool:
        """Whether vCPUs are pinned to pCPUs of their own."""
        cpu = self.domain.cpu
        return cpu is not None and bool(cpu.dedicated_cpu_placement)

    @property
    def realtime(self) -> bool:
        """Whether the guest is a realtime one."""
        return self.domain.cpu is not None and self.domain.cpu.realtime is not None

    @property
    def efi(self) -> bool:
        """Whether the guest boots by UEFI."""
        firmware = self.domain.firmware
        return (
            firmware is not None and firmware.bootloader is not None and firmware.bootloader.efi is not None
        )


def plan_context(
    vmi: VirtualMachineInstance, facts: NodeFacts, allocations: Allocations, settings: PlanSettings
) -> PlanContext:
    """Derive the context of a validated and defaulted ``vmi``.

    Raises:
        HostUnsupported: the node cannot run the guest's architecture, or only by an emulation that is not
            allowed.
    """
    arch = ARCHITECTURES.get(vmi.spec.architecture or facts.arch, AMD64)
    virt = _virt(arch, facts, settings)
    topology = _fitted(vcpu_topology(vmi), arch, facts, virt)
    domain = vmi.spec.domain
    transitional = bool(domain.devices.use_virtio_transitional)
    return PlanContext(
        vmi=vmi,
        domain=domain,
        devices=domain.devices,
        facts=facts,
        settings=settings,
        allocations=allocations,
        paths=instance_paths(settings, allocations.uid),
        arch=arch,
        virt=virt,
        topology=topology,
        memory=guest_memory(vmi),
        iothreads=iothread_layout(vmi, topology.current),
        virtio_model=arch.virtio_transitional if transitional else arch.virtio,
        scsi_model=arch.scsi_transitional if transitional else arch.scsi,
        iommu=_hidden_memory(arch, domain),
        high_performance=_high_performance(domain),
    )


def vcpu_topology(vmi: VirtualMachineInstance) -> Topology:
    """The vCPU topology of a defaulted ``vmi``."""
    cpu = vmi.spec.domain.cpu
    if cpu is None:
        return Topology(sockets=1, cores=1, threads=1)
    return Topology(
        sockets=cpu.sockets or 1,
        cores=cpu.cores or 1,
        threads=cpu.threads or 1,
        max_sockets=cpu.max_sockets or 0,
    )


def guest_memory(vmi: VirtualMachineInstance) -> int:
    """Memory of the guest at boot in bytes: guest, else requests, else limits (fractions are cut off)."""
    domain = vmi.spec.domain
    asked: Quantity | None = domain.memory.guest if domain.memory is not None else None
    if asked is None and domain.resources is not None:
        asked = domain.resources.requests.get("memory") or domain.resources.limits.get("memory")
    if asked is None:
        raise Bug("a defaulted manifest has no guest memory")
    return floor(asked.value)


def most_vcpus(arch: ArchTraits, facts: NodeFacts, virt: str) -> int | None:
    """vCPUs that a guest can have on this host; None: not known."""
    caps = facts.caps(arch, virt)
    limits = [caps.max_vcpus] if caps is not None and caps.max_vcpus else []
    if arch.name == AMD64.name and facts.libvirt_version < versions.AUTOMATIC_IOMMU:
        limits.append(_VCPUS_WITHOUT_IOMMU)
    return min(limits, default=None)


def _fitted(topology: Topology, arch: ArchTraits, facts: NodeFacts, virt: str) -> Topology:
    """Room for hotplug is given up where the host cannot have it; vCPUs of the guest are not."""
    if not arch.cpu_hotplug:
        topology = replace(topology, max_sockets=0)
    most = most_vcpus(arch, facts, virt)
    if most is None or topology.maximum <= most:
        return topology
    return replace(topology, max_sockets=max(most // topology.per_socket, topology.sockets))


def _virt(arch: ArchTraits, facts: NodeFacts, settings: PlanSettings) -> str:
    if not facts.runs(arch):
        raise HostUnsupported(
            arch.emulator, f"there is no QEMU for {arch.name} guests", hint=f"install {arch.emulator}"
        )
    if facts.kvm(arch):
        return "kvm"
    if settings.allow_emulation:
        return "qemu"
    why = "it has no usable /dev/kvm" if arch.name == facts.arch else f"its CPUs are {facts.arch}"
    raise HostUnsupported(
        f"KVM for {arch.name} guests", why, hint="set allow_emulation to run guests by (slow) emulation"
    )


def _hidden_memory(arch: ArchTraits, domain: DomainSpec) -> bool:
    """SEV, SEV-ES, SEV-SNP and Secure Execution; TDX guests share pages by themselves."""
    security = domain.launch_security
    if security is None:
        return False
    return arch.name == "s390x" or security.sev is not None or security.snp is not None


def _high_performance(domain: DomainSpec) -> bool:
    cpu, memory = domain.cpu, domain.memory
    if cpu is not None and (cpu.dedicated_cpu_placement or cpu.realtime is not None):
        return True
    return memory is not None and memory.hugepages is not None
