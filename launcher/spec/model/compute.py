# SPDX-License-Identifier: Apache-2.0
"""CPU, memory, machine, resources and launch security of a domain."""

from __future__ import annotations

from msgspec import field

from launcher.spec.model.base import Model
from launcher.spec.model.scalars import Int64
from launcher.spec.quantity import Quantity


class CPUFeature(Model, frozen=True, kw_only=True):
    """API type ``CPUFeature``."""

    name: str
    policy: str | None = None


class NUMAGuestMappingPassthrough(Model, frozen=True, kw_only=True):
    """API type ``NUMAGuestMappingPassthrough``."""


class NUMA(Model, frozen=True, kw_only=True):
    """API type ``NUMA``."""

    guest_mapping_passthrough: NUMAGuestMappingPassthrough | None = None


class Realtime(Model, frozen=True, kw_only=True):
    """API type ``Realtime``."""

    mask: str | None = None


class CPU(Model, frozen=True, kw_only=True):
    """API type ``CPU``."""

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
    """API type ``DiskIOThreads``."""

    supplemental_pool_thread_count: Int64 | None = None


class Hugepages(Model, frozen=True, kw_only=True):
    """API type ``Hugepages``."""

    page_size: str | None = None


class SEVAttestation(Model, frozen=True, kw_only=True):
    """API type ``SEVAttestation``."""


class SEVPolicy(Model, frozen=True, kw_only=True):
    """API type ``SEVPolicy``."""

    encrypted_state: bool | None = None


class SEV(Model, frozen=True, kw_only=True):
    """API type ``SEV``."""

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
    """API type ``ReservedOverhead``."""

    added_overhead: Quantity | None = None
    mem_lock: str | None = None


class Memory(Model, frozen=True, kw_only=True):
    """API type ``Memory``."""

    guest: Quantity | None = None
    hugepages: Hugepages | None = None
    max_guest: Quantity | None = None
    reserved_overhead: ReservedOverhead | None = None


class ResourceRequirements(Model, frozen=True, kw_only=True):
    """API type ``ResourceRequirements``."""

    limits: dict[str, Quantity] = field(default_factory=dict)
    overcommit_guest_overhead: bool | None = None
    requests: dict[str, Quantity] = field(default_factory=dict)
