# SPDX-License-Identifier: Apache-2.0
"""What backs disks and filesystems."""

from __future__ import annotations

from typing import Literal

from msgspec import field

from launcher.spec.model.base import Model
from launcher.spec.model.meta import LocalObjectReference, ObjectFieldSelector, ResourceFieldSelector
from launcher.spec.model.scalars import Int32
from launcher.spec.quantity import Quantity


class CloudInitConfigDriveSource(Model, frozen=True, kw_only=True):
    """API type ``CloudInitConfigDriveSource``.

    User and network data inline, as base64, or by Secret. Inline data is secret: it is never shown.
    """

    network_data: str | None = None
    network_data_base64: str | None = None
    network_data_secret_ref: LocalObjectReference | None = None
    secret_ref: LocalObjectReference | None = None
    user_data: str | None = None
    user_data_base64: str | None = None


class CloudInitNoCloudSource(Model, frozen=True, kw_only=True):
    """API type ``CloudInitNoCloudSource``.

    User and network data inline, as base64, or by Secret. Inline data is secret: it is never shown.
    """

    network_data: str | None = None
    network_data_base64: str | None = None
    network_data_secret_ref: LocalObjectReference | None = None
    secret_ref: LocalObjectReference | None = None
    user_data: str | None = None
    user_data_base64: str | None = None


class ConfigMapVolumeSource(Model, frozen=True, kw_only=True):
    """API type ``ConfigMapVolumeSource``."""

    name: str | None = None
    optional: bool | None = None
    volume_label: str | None = None


class ContainerDiskSource(Model, frozen=True, kw_only=True):
    """API type ``ContainerDiskSource``.

    An image in a container image; ``path`` is that of the file in it, absent means the one below
    ``/disk``.
    """

    image: str
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = None
    image_pull_secret: str | None = None
    path: str | None = None


class ContainerPathVolumeSource(Model, frozen=True, kw_only=True):
    """API type ``ContainerPathVolumeSource``."""

    path: str
    read_only: bool | None = None


class CorePersistentVolumeClaimVolumeSource(Model, frozen=True, kw_only=True):
    """API type ``CorePersistentVolumeClaimVolumeSource``."""

    claim_name: str
    read_only: bool | None = None


class DataVolumeSource(Model, frozen=True, kw_only=True):
    """API type ``DataVolumeSource``."""

    name: str
    hotpluggable: bool | None = None


class DownwardAPIVolumeFile(Model, frozen=True, kw_only=True):
    """API type ``DownwardAPIVolumeFile``.

    One file; ``mode`` holds the permission bits as a number (YAML may write it as octal, ``0644``).
    """

    path: str
    field_ref: ObjectFieldSelector | None = None
    mode: Int32 | None = None
    resource_field_ref: ResourceFieldSelector | None = None


class DownwardAPIVolumeSource(Model, frozen=True, kw_only=True):
    """API type ``DownwardAPIVolumeSource``."""

    fields: tuple[DownwardAPIVolumeFile, ...] = ()
    volume_label: str | None = None


class DownwardMetricsVolumeSource(Model, frozen=True, kw_only=True):
    """API type ``DownwardMetricsVolumeSource``."""


class EmptyDiskSource(Model, frozen=True, kw_only=True):
    """API type ``EmptyDiskSource``.

    A fresh disk of ``capacity`` bytes that lives as long as the instance.
    """

    capacity: Quantity


class EphemeralVolumeSource(Model, frozen=True, kw_only=True):
    """API type ``EphemeralVolumeSource``."""

    persistent_volume_claim: CorePersistentVolumeClaimVolumeSource | None = None


class HostDisk(Model, frozen=True, kw_only=True):
    """API type ``HostDisk``.

    A raw image on the node: ``type`` is ``Disk`` (it exists) or ``DiskOrCreate`` (made with
    ``capacity`` bytes when missing).
    """

    path: str
    type: str
    capacity: Quantity | None = None
    shared: bool | None = None


class MemoryDumpVolumeSource(Model, frozen=True, kw_only=True):
    """API type ``MemoryDumpVolumeSource``."""

    claim_name: str
    hotpluggable: bool | None = None
    read_only: bool | None = None


class PersistentVolumeClaimVolumeSource(Model, frozen=True, kw_only=True):
    """API type ``PersistentVolumeClaimVolumeSource``."""

    claim_name: str
    hotpluggable: bool | None = None
    read_only: bool | None = None


class SecretVolumeSource(Model, frozen=True, kw_only=True):
    """API type ``SecretVolumeSource``."""

    optional: bool | None = None
    secret_name: str | None = None
    volume_label: str | None = None


class ServiceAccountVolumeSource(Model, frozen=True, kw_only=True):
    """API type ``ServiceAccountVolumeSource``."""

    service_account_name: str | None = None


class SysprepSource(Model, frozen=True, kw_only=True):
    """API type ``SysprepSource``."""

    config_map: LocalObjectReference | None = None
    secret: LocalObjectReference | None = None


class UtilityVolume(Model, frozen=True, kw_only=True):
    """API type ``UtilityVolume``."""

    claim_name: str
    name: str
    read_only: bool | None = None
    type: str | None = None


class Volume(Model, frozen=True, kw_only=True):
    """API type ``Volume``."""

    name: str
    cloud_init_config_drive: CloudInitConfigDriveSource | None = None
    cloud_init_no_cloud: CloudInitNoCloudSource | None = None
    config_map: ConfigMapVolumeSource | None = None
    container_disk: ContainerDiskSource | None = None
    container_path: ContainerPathVolumeSource | None = None
    data_volume: DataVolumeSource | None = None
    downward_api: DownwardAPIVolumeSource | None = field(name="downwardAPI", default=None)
    downward_metrics: DownwardMetricsVolumeSource | None = None
    empty_disk: EmptyDiskSource | None = None
    ephemeral: EphemeralVolumeSource | None = None
    host_disk: HostDisk | None = None
    memory_dump: MemoryDumpVolumeSource | None = None
    persistent_volume_claim: PersistentVolumeClaimVolumeSource | None = None
    secret: SecretVolumeSource | None = None
    service_account: ServiceAccountVolumeSource | None = None
    sysprep: SysprepSource | None = None
