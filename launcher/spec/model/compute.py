# SPDX-License-Identifier: Apache-2.0
"""CPU, memory, machine, resources and launch security of a domain."""

from __future__ import annotations

from msgspec import field

from launcher.spec.model.base import Model
from launcher.spec.model.scalars import Int64
from launcher.spec.quantity import Quantity


class CPUFeature(Model, frozen=True, kw_only=True):
    """API type ``CPUFeature``.

    A CPU flag; ``policy`` is force, require (also when absent), optional, disable or forbid.
    """

    name: str
    policy: str | None = None


class NUMAGuestMappingPassthrough(Model, frozen=True, kw_only=True):
    """API type ``NUMAGuestMappingPassthrough``."""


class NUMA(Model, frozen=True, kw_only=True):
    """API type ``NUMA``."""

    guest_mapping_passthrough: NUMAGuestMappingPassthrough | None = None


class Realtime(Model, frozen=True, kw_only=True):
    """API type ``Realtime``.

    ``mask`` names the vCPUs with realtime scheduling, such as ``0-3,^1``; absent means all.
    """

    mask: str | None = None


class CPU(Model, frozen=True, kw_only=True):
    """API type ``CPU``.

    ``cores`` per socket, ``threads`` per core; ``max_sockets`` is how far sockets can be hotplugged.
    ``model`` is a libvirt model, ``host-model`` or ``host-passthrough``.
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

    The number of threads that serve all disks together, where the policy is ``supplementalPool``.
    """

    supplemental_pool_thread_count: Int64 | None = None


class Hugepages(Model, frozen=True, kw_only=True):
    """API type ``Hugepages``.

    Back the guest with huge pages. ``page_size`` is a quantity as text (``2Mi``, ``1Gi``): the API has
    it so.
    """

    page_size: str | None = None


class SEVAttestation(Model, frozen=True, kw_only=True):
    """API type ``SEVAttestation``."""


class SEVPolicy(Model, frozen=True, kw_only=True):
    """API type ``SEVPolicy``."""

    encrypted_state: bool | None = None


class SEV(Model, frozen=True, kw_only=True):
    """API type ``SEV``.

    ``dh_cert`` and ``session`` are base64 and secret: they are never shown.
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
    """API type ``LaunchSecurity``."""

    sev: SEV | None = None
    snp: SEVSNP | None = None
    tdx: TDX | None = None


class Machine(Model, frozen=True, kw_only=True):
    """API type ``Machine``."""

    type: str | None = None


class ReservedOverhead(Model, frozen=True, kw_only=True):
    """API type ``ReservedOverhead``.

    ``added_overhead`` bytes are reserved beside the guest's memory; ``mem_lock`` is ``Required`` or
    ``NotRequired``.
    """

    added_overhead: Quantity | None = None
    mem_lock: str | None = None


class Memory(Model, frozen=True, kw_only=True):
    """API type ``Memory``.

    What the guest has: ``guest`` bytes at boot, up to ``max_guest`` bytes by hotplug. Absent ``guest``
    is taken from the resources.
    """

    guest: Quantity | None = None
    hugepages: Hugepages | None = None
    max_guest: Quantity | None = None
    reserved_overhead: ReservedOverhead | None = None


class ResourceRequirements(Model, frozen=True, kw_only=True):
    """API type ``ResourceRequirements``.

    Amounts by resource name: ``memory`` in bytes, ``cpu`` in CPUs. They size what the guest's own
    fields leave open.
    """

    limits: dict[str, Quantity] = field(default_factory=dict)
    overcommit_guest_overhead: bool | None = None
    requests: dict[str, Quantity] = field(default_factory=dict)
