# SPDX-License-Identifier: Apache-2.0
"""The VirtualMachineInstance object itself."""

from __future__ import annotations

from typing import Literal

from msgspec import field

from launcher.spec.model.base import Model
from launcher.spec.model.clock import Clock
from launcher.spec.model.compute import (
    CPU,
    DiskIOThreads,
    LaunchSecurity,
    Machine,
    Memory,
    ResourceRequirements,
)
from launcher.spec.model.credentials import AccessCredential
from launcher.spec.model.devices import Devices
from launcher.spec.model.features import Features
from launcher.spec.model.firmware import Chassis, Firmware
from launcher.spec.model.interfaces import Network
from launcher.spec.model.meta import ObjectMeta
from launcher.spec.model.probes import Probe
from launcher.spec.model.scalars import Int64
from launcher.spec.model.scheduling import (
    Affinity,
    PodDNSConfig,
    Toleration,
    TopologySpreadConstraint,
    VirtualMachineInstanceResourceClaim,
)
from launcher.spec.model.status import VirtualMachineInstanceStatus
from launcher.spec.model.volumes import UtilityVolume, Volume


class DomainSpec(Model, frozen=True, kw_only=True):
    """API type ``DomainSpec``.

    The virtual machine itself: its hardware and firmware.
    """

    devices: Devices
    chassis: Chassis | None = None
    clock: Clock | None = None
    cpu: CPU | None = None
    features: Features | None = None
    firmware: Firmware | None = None
    io_threads: DiskIOThreads | None = None
    io_threads_policy: str | None = None
    launch_security: LaunchSecurity | None = None
    machine: Machine | None = None
    memory: Memory | None = None
    reboot_policy: str | None = None
    resources: ResourceRequirements | None = None


class VirtualMachineInstanceSpec(Model, frozen=True, kw_only=True):
    """API type ``VirtualMachineInstanceSpec``.

    What the user wants. ``termination_grace_period_seconds`` is how long a guest may take to shut down
    before it is killed; 0 kills it at once.
    """

    domain: DomainSpec
    access_credentials: tuple[AccessCredential, ...] = ()
    affinity: Affinity | None = None
    architecture: str | None = None
    dns_config: PodDNSConfig | None = None
    dns_policy: Literal["ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"] | None = None
    eviction_strategy: str | None = None
    hostname: str | None = None
    liveness_probe: Probe | None = None
    networks: tuple[Network, ...] = ()
    node_selector: dict[str, str] = field(default_factory=dict)
    priority_class_name: str | None = None
    readiness_probe: Probe | None = None
    resource_claims: tuple[VirtualMachineInstanceResourceClaim, ...] = ()
    scheduler_name: str | None = None
    service_account_name: str | None = None
    start_strategy: str | None = None
    subdomain: str | None = None
    termination_grace_period_seconds: Int64 | None = None
    tolerations: tuple[Toleration, ...] = ()
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] = ()
    utility_volumes: tuple[UtilityVolume, ...] = ()
    volumes: tuple[Volume, ...] = ()


class VirtualMachineInstance(Model, frozen=True, kw_only=True):
    """API type ``VirtualMachineInstance``."""

    spec: VirtualMachineInstanceSpec
    api_version: str | None = None
    kind: str | None = None
    metadata: ObjectMeta | None = None
    status: VirtualMachineInstanceStatus | None = None
