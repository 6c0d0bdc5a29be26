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

    devices: disks, interfaces and all other devices
    chassis: what SMBIOS says about the case
    clock: the guest's real-time clock and timers
    cpu: number, model, features and placement of the vCPUs
    features: hypervisor features, Hyper-V enlightenments among them
    firmware: BIOS or UEFI, direct kernel boot, serial number, UUID
    io_threads: size of the thread pool of the policy supplementalPool
    io_threads_policy: how disks share I/O threads: one for all (shared), by disk (auto), or a pool for
        all queues
    launch_security: encryption of the guest's memory against the host
    machine: the board that QEMU emulates
    memory: size and backing of the guest's memory
    reboot_policy: what a reboot from inside does: Reboot, or Terminate to end the instance
    resources: CPU and memory that are reserved and that size what the guest's own fields leave open
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

    What the user wants.

    domain: the virtual machine itself: its hardware and firmware
    access_credentials: SSH keys and passwords to bring into the guest
    affinity: which nodes and neighbours a scheduler prefers or requires
    architecture: the guest's CPU architecture; absent, that of the node
    dns_config: resolver settings of the pod around the guest
    dns_policy: where the pod's resolver settings come from
    eviction_strategy: what happens to the guest when its node is drained
    hostname: host name that DHCP and cloud-init tell the guest; absent, the instance's name
    liveness_probe: check that restarts or ends a guest that no longer answers
    networks: networks that the interfaces attach to, matched by name
    node_selector: labels that a node must have to run the instance
    priority_class_name: name of the scheduling priority
    readiness_probe: check that decides whether the guest receives traffic
    resource_claims: dynamic resource claims that devices take their hardware from
    scheduler_name: the scheduler that places the instance
    service_account_name: the service account whose token a serviceAccount volume would hold
    start_strategy: Paused lets the guest wait, before its first instruction, for an unpause
    subdomain: domain below which the guest's full host name is built
    termination_grace_period_seconds: seconds a guest may take to shut down before it is killed; 0 kills
        it at once
    tolerations: taints of nodes that the instance puts up with
    topology_spread_constraints: how a group of instances spreads over zones or nodes
    utility_volumes: volumes for the agent's own use that the guest never sees
    volumes: what backs the disks and filesystems, matched by name
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
