# SPDX-License-Identifier: Apache-2.0
"""The observed side of a VirtualMachineInstance."""

from __future__ import annotations

from typing import Literal

from msgspec import field

from launcher.spec.model.base import Model
from launcher.spec.model.compute import CPUTopology, Machine
from launcher.spec.model.migration import VirtualMachineInstanceMigrationState
from launcher.spec.model.scalars import Int32, Int64, Time
from launcher.spec.quantity import Quantity


class VirtualMachineInstanceBackupVolumeInfo(Model, frozen=True, kw_only=True):
    """API type ``VirtualMachineInstanceBackupVolumeInfo``."""

    volume_name: str


class VirtualMachineInstanceBackupStatus(Model, frozen=True, kw_only=True):
    """API type ``VirtualMachineInstanceBackupStatus``."""

    backup_msg: str | None = None
    backup_name: str | None = None
    checkpoint_name: str | None = None
    completed: bool | None = None
    end_timestamp: Time | None = None
    failed: bool | None = None
    quiesce_status: str | None = None
    start_timestamp: Time | None = None
    volumes: tuple[VirtualMachineInstanceBackupVolumeInfo, ...] = ()


class ChangedBlockTrackingStatus(Model, frozen=True, kw_only=True):
    """API type ``ChangedBlockTrackingStatus``."""

    state: str
    backup_status: VirtualMachineInstanceBackupStatus | None = None


class ContainerDiskInfo(Model, frozen=True, kw_only=True):
    """API type ``ContainerDiskInfo``."""

    checksum: Int64 | None = None


class DomainMemoryDumpInfo(Model, frozen=True, kw_only=True):
    """API type ``DomainMemoryDumpInfo``."""

    claim_name: str | None = None
    end_timestamp: Time | None = None
    start_timestamp: Time | None = None
    target_file_name: str | None = None


class HotplugVolumeStatus(Model, frozen=True, kw_only=True):
    """API type ``HotplugVolumeStatus``."""

    attach_pod_name: str | None = None
    attach_pod_uid: str | None = field(name="attachPodUID", default=None)


class InitrdInfo(Model, frozen=True, kw_only=True):
    """API type ``InitrdInfo``."""

    checksum: Int64 | None = None


class KernelInfo(Model, frozen=True, kw_only=True):
    """API type ``KernelInfo``."""

    checksum: Int64 | None = None


class KernelBootStatus(Model, frozen=True, kw_only=True):
    """API type ``KernelBootStatus``."""

    initrd_info: InitrdInfo | None = None
    kernel_info: KernelInfo | None = None


class MemoryStatus(Model, frozen=True, kw_only=True):
    """API type ``MemoryStatus``.

    Bytes.
    """

    guest_at_boot: Quantity | None = None
    guest_current: Quantity | None = None
    guest_requested: Quantity | None = None
    memory_overhead: Quantity | None = None


class PersistentVolumeClaimInfo(Model, frozen=True, kw_only=True):
    """API type ``PersistentVolumeClaimInfo``."""

    access_modes: tuple[
        Literal["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"], ...
    ] = ()
    capacity: dict[str, Quantity] = field(default_factory=dict)
    claim_name: str | None = None
    filesystem_overhead: str | None = None
    preallocated: bool | None = None
    requests: dict[str, Quantity] = field(default_factory=dict)
    volume_mode: Literal["Block", "Filesystem", "FromStorageProfile"] | None = None


class StorageMigratedVolumeInfo(Model, frozen=True, kw_only=True):
    """API type ``StorageMigratedVolumeInfo``."""

    volume_name: str
    destination_pvc_info: PersistentVolumeClaimInfo | None = field(name="destinationPVCInfo", default=None)
    source_pvc_info: PersistentVolumeClaimInfo | None = field(name="sourcePVCInfo", default=None)


class TopologyHints(Model, frozen=True, kw_only=True):
    """API type ``TopologyHints``.

    ``tsc_frequency`` is in Hz.
    """

    tsc_frequency: Int64 | None = None


class VirtualMachineInstanceCondition(Model, frozen=True, kw_only=True):
    """API type ``VirtualMachineInstanceCondition``."""

    status: str
    type: str
    last_probe_time: Time | None = None
    last_transition_time: Time | None = None
    message: str | None = None
    reason: str | None = None


class VirtualMachineInstanceGuestOSInfo(Model, frozen=True, kw_only=True):
    """API type ``VirtualMachineInstanceGuestOSInfo``."""

    id: str | None = None
    kernel_release: str | None = None
    kernel_version: str | None = None
    machine: str | None = None
    name: str | None = None
    pretty_name: str | None = None
    version: str | None = None
    version_id: str | None = None


class VirtualMachineInstanceNetworkInterface(Model, frozen=True, kw_only=True):
    """API type ``VirtualMachineInstanceNetworkInterface``."""

    info_source: str | None = None
    interface_name: str | None = None
    ip_address: str | None = None
    ip_addresses: tuple[str, ...] = ()
    link_state: str | None = None
    mac: str | None = None
    name: str | None = None
    pod_interface_name: str | None = None
    queue_count: Int32 | None = None


class VirtualMachineInstancePhaseTransitionTimestamp(Model, frozen=True, kw_only=True):
    """API type ``VirtualMachineInstancePhaseTransitionTimestamp``."""

    phase: str | None = None
    phase_transition_timestamp: Time | None = None


class VolumeStatus(Model, frozen=True, kw_only=True):
    """API type ``VolumeStatus``.

    ``target`` is the device name in the domain (``vda``); ``size`` is in bytes.
    """

    name: str
    target: str
    container_disk_volume: ContainerDiskInfo | None = None
    hotplug_volume: HotplugVolumeStatus | None = None
    memory_dump_volume: DomainMemoryDumpInfo | None = None
    message: str | None = None
    persistent_volume_claim_info: PersistentVolumeClaimInfo | None = None
    phase: str | None = None
    reason: str | None = None
    size: Int64 | None = None


class VirtualMachineInstanceStatus(Model, frozen=True, kw_only=True):
    """API type ``VirtualMachineInstanceStatus``."""

    vsock_cid: Int64 | None = field(name="VSOCKCID", default=None)
    active_pods: dict[str, str] = field(default_factory=dict)
    changed_block_tracking: ChangedBlockTrackingStatus | None = None
    conditions: tuple[VirtualMachineInstanceCondition, ...] = ()
    current_cpu_topology: CPUTopology | None = field(name="currentCPUTopology", default=None)
    evacuation_node_name: str | None = None
    fs_freeze_status: str | None = None
    guest_os_info: VirtualMachineInstanceGuestOSInfo | None = field(name="guestOSInfo", default=None)
    interfaces: tuple[VirtualMachineInstanceNetworkInterface, ...] = ()
    kernel_boot_status: KernelBootStatus | None = None
    launcher_container_image_version: str | None = None
    machine: Machine | None = None
    memory: MemoryStatus | None = None
    migrated_volumes: tuple[StorageMigratedVolumeInfo, ...] = ()
    migration_method: str | None = None
    migration_state: VirtualMachineInstanceMigrationState | None = None
    migration_transport: str | None = None
    node_name: str | None = None
    phase: str | None = None
    phase_transition_timestamps: tuple[VirtualMachineInstancePhaseTransitionTimestamp, ...] = ()
    qos_class: Literal["BestEffort", "Burstable", "Guaranteed"] | None = None
    reason: str | None = None
    runtime_user: Int64 | None = None
    selinux_context: str | None = None
    topology_hints: TopologyHints | None = None
    virtual_machine_revision_name: str | None = None
    volume_status: tuple[VolumeStatus, ...] = ()
