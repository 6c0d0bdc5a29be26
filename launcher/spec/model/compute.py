# SPDX-License-Identifier: Apache-2.0
"""CPU, memory, machine, resources and launch security of a domain."""

from __future__ import annotations

from msgspec import field

from launcher.spec.model.base import Model
from launcher.spec.model.scalars import Int64
from launcher.spec.quantity import Quantity


class CPUFeature(Model, frozen=True, kw_only=True):
    """API type ``CPUFeature``.

    One CPU flag.

    name: libvirt's name of the flag
    policy: force, require (the meaning when absent), optional, disable or forbid
    """

    name: str
    policy: str | None = None


class NUMAGuestMappingPassthrough(Model, frozen=True, kw_only=True):
    """API type ``NUMAGuestMappingPassthrough``."""


class NUMA(Model, frozen=True, kw_only=True):
    """API type ``NUMA``.

    NUMA of the guest.

    guest_mapping_passthrough: a guest cell for each host cell that its CPUs are on, with memory from
        there
    """

    guest_mapping_passthrough: NUMAGuestMappingPassthrough | None = None


class Realtime(Model, frozen=True, kw_only=True):
    """API type ``Realtime``.

    Realtime vCPUs.

    mask: the vCPUs with realtime scheduling, such as 0-3,^1; absent, all
    """

    mask: str | None = None


class CPU(Model, frozen=True, kw_only=True):
    """API type ``CPU``.

    Number, model, features and placement of the vCPUs.

    cores: cores of each socket; absent, 1
    dedicated_cpu_placement: each vCPU runs on a physical CPU that nobody else gets
    features: CPU flags to add or to take away
    isolate_emulator_thread: QEMU's own thread gets a dedicated CPU too, apart from the vCPUs
    max_sockets: how many sockets there may be after plugging some at run time
    model: a libvirt CPU model, host-model or host-passthrough
    numa: how the guest's NUMA cells follow the host's
    realtime: the guest is a realtime one: vCPUs under a FIFO scheduler, memory locked
    sockets: sockets at start; absent, 1
    threads: threads of each core; absent, 1
    """

    cores: Int64 | None = None
    dedicated_cpu_placement: bool | None = None
    features: tuple[CPUFeature, ...] = ()
    isolate_emulator_thread: bool | None = None
    max_sockets: Int64 | None = None
    model: str | None = None
    numa: NUMA | None = None
    realtime: Realtime | None = None
    sockets: Int64 | None = None
    threads: Int64 | None = None


class CPUTopology(Model, frozen=True, kw_only=True):
    """API type ``CPUTopology``."""

    cores: Int64 | None = None
    sockets: Int64 | None = None
    threads: Int64 | None = None


class DiskIOThreads(Model, frozen=True, kw_only=True):
    """API type ``DiskIOThreads``.

    Of the policy supplementalPool.

    supplemental_pool_thread_count: threads that serve all virtio disks together
    """

    supplemental_pool_thread_count: Int64 | None = None


class Hugepages(Model, frozen=True, kw_only=True):
    """API type ``Hugepages``.

    Backing by huge pages.

    page_size: size of a page, such as 2Mi or 1Gi
    """

    page_size: str | None = None


class SEVAttestation(Model, frozen=True, kw_only=True):
    """API type ``SEVAttestation``."""


class SEVPolicy(Model, frozen=True, kw_only=True):
    """API type ``SEVPolicy``.

    What the firmware must guarantee.

    encrypted_state: registers are encrypted, too (SEV-ES)
    """

    encrypted_state: bool | None = None


class SEV(Model, frozen=True, kw_only=True):
    """API type ``SEV``.

    AMD SEV and SEV-ES.

    attestation: the guest waits, paused, until its owner has measured it
    dh_cert: the guest owner's certificate, base64; secret, never shown
    policy: what the firmware must guarantee
    session: the guest owner's session, base64; secret, never shown
    """

    attestation: SEVAttestation | None = None
    dh_cert: str | None = None
    policy: SEVPolicy | None = None
    session: str | None = None


class SEVSNP(Model, frozen=True, kw_only=True):
    """API type ``SEVSNP``."""


class TDX(Model, frozen=True, kw_only=True):
    """API type ``TDX``."""


class LaunchSecurity(Model, frozen=True, kw_only=True):
    """API type ``LaunchSecurity``.

    Encryption of the guest's memory; at most one kind, none of them on s390x (Secure Execution).

    sev: AMD SEV and SEV-ES
    snp: AMD SEV-SNP
    tdx: Intel TDX
    """

    sev: SEV | None = None
    snp: SEVSNP | None = None
    tdx: TDX | None = None


class Machine(Model, frozen=True, kw_only=True):
    """API type ``Machine``.

    The board that QEMU emulates.

    type: machine type; absent, q35 on amd64, virt on arm64, s390-ccw-virtio on s390x
    """

    type: str | None = None


class ReservedOverhead(Model, frozen=True, kw_only=True):
    """API type ``ReservedOverhead``.

    What is reserved beside the guest's memory.

    added_overhead: bytes on top of the computed overhead
    mem_lock: whether QEMU's memory must be locked: Required or NotRequired
    """

    added_overhead: Quantity | None = None
    mem_lock: str | None = None


class Memory(Model, frozen=True, kw_only=True):
    """API type ``Memory``.

    Size and backing of the guest's memory.

    guest: bytes at boot; absent, taken from the resources
    hugepages: back the guest with huge pages
    max_guest: bytes that it can grow to by hotplug
    reserved_overhead: what is reserved beside the guest's memory
    """

    guest: Quantity | None = None
    hugepages: Hugepages | None = None
    max_guest: Quantity | None = None
    reserved_overhead: ReservedOverhead | None = None


class ResourceRequirements(Model, frozen=True, kw_only=True):
    """API type ``ResourceRequirements``.

    Amounts by resource name: memory in bytes, cpu in CPUs.

    limits: upper bounds; cpu and memory also size a guest that names no size
    overcommit_guest_overhead: the overhead of QEMU is not added to the reserved memory
    requests: what is reserved; memory and cpu also size a guest that names no size
    """

    limits: dict[str, Quantity] = field(default_factory=dict)
    overcommit_guest_overhead: bool | None = None
    requests: dict[str, Quantity] = field(default_factory=dict)
