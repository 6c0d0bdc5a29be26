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

    User data and network data, each inline, as base64 or by Secret. Inline data is secret: never shown.

    network_data: network configuration, inline
    network_data_base64: the same as base64
    network_data_secret_ref: the same from a Secret
    secret_ref: the user data from a Secret
    user_data: user data, inline
    user_data_base64: the same as base64
    """

    network_data: str | None = None
    network_data_base64: str | None = None
    network_data_secret_ref: LocalObjectReference | None = None
    secret_ref: LocalObjectReference | None = None
    user_data: str | None = None
    user_data_base64: str | None = None


class CloudInitNoCloudSource(Model, frozen=True, kw_only=True):
    """API type ``CloudInitNoCloudSource``.

    User data and network data, each inline, as base64 or by Secret. Inline data is secret: never shown.

    network_data: network configuration, inline
    network_data_base64: the same as base64
    network_data_secret_ref: the same from a Secret
    secret_ref: the user data from a Secret
    user_data: user data, inline
    user_data_base64: the same as base64
    """

    network_data: str | None = None
    network_data_base64: str | None = None
    network_data_secret_ref: LocalObjectReference | None = None
    secret_ref: LocalObjectReference | None = None
    user_data: str | None = None
    user_data_base64: str | None = None


class ConfigMapVolumeSource(Model, frozen=True, kw_only=True):
    """API type ``ConfigMapVolumeSource``.

    The keys of a ConfigMap.

    name: name of the ConfigMap
    optional: it may be missing
    volume_label: label of the disk that holds the files
    """

    name: str | None = None
    optional: bool | None = None
    volume_label: str | None = None


class ContainerDiskSource(Model, frozen=True, kw_only=True):
    """API type ``ContainerDiskSource``.

    A disk image out of a container image.

    image: reference of the image
    image_pull_policy: when the image is looked up in the registry
    image_pull_secret: Secret with the registry's credentials
    path: absolute path of the disk in the image; absent, the one file below /disk
    """

    image: str
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = None
    image_pull_secret: str | None = None
    path: str | None = None


class ContainerPathVolumeSource(Model, frozen=True, kw_only=True):
    """API type ``ContainerPathVolumeSource``.

    A path of the container that QEMU runs in.

    path: absolute path
    read_only: the guest cannot write
    """

    path: str
    read_only: bool | None = None


class CorePersistentVolumeClaimVolumeSource(Model, frozen=True, kw_only=True):
    """API type ``CorePersistentVolumeClaimVolumeSource``.

    A claim.

    claim_name: name of the claim
    read_only: it is only read
    """

    claim_name: str
    read_only: bool | None = None


class DataVolumeSource(Model, frozen=True, kw_only=True):
    """API type ``DataVolumeSource``.

    The claim that a DataVolume fills.

    name: name of the DataVolume and its claim
    hotpluggable: it was plugged at run time
    """

    name: str
    hotpluggable: bool | None = None


class DownwardAPIVolumeFile(Model, frozen=True, kw_only=True):
    """API type ``DownwardAPIVolumeFile``.

    One file.

    path: relative path of the file
    field_ref: a field of the instance's metadata
    mode: permission bits; YAML may write them as octal, 0644
    resource_field_ref: a figure of the resources
    """

    path: str
    field_ref: ObjectFieldSelector | None = None
    mode: Int32 | None = None
    resource_field_ref: ResourceFieldSelector | None = None


class DownwardAPIVolumeSource(Model, frozen=True, kw_only=True):
    """API type ``DownwardAPIVolumeSource``.

    Fields of the instance.

    fields: the files
    volume_label: label of the disk that holds the files
    """

    fields: tuple[DownwardAPIVolumeFile, ...] = ()
    volume_label: str | None = None


class DownwardMetricsVolumeSource(Model, frozen=True, kw_only=True):
    """API type ``DownwardMetricsVolumeSource``."""


class EmptyDiskSource(Model, frozen=True, kw_only=True):
    """API type ``EmptyDiskSource``.

    An empty disk.

    capacity: size in bytes
    """

    capacity: Quantity


class EphemeralVolumeSource(Model, frozen=True, kw_only=True):
    """API type ``EphemeralVolumeSource``.

    A claim whose content is not changed.

    persistent_volume_claim: the claim underneath
    """

    persistent_volume_claim: CorePersistentVolumeClaimVolumeSource | None = None


class HostDisk(Model, frozen=True, kw_only=True):
    """API type ``HostDisk``.

    An image file of the node.

    path: absolute path of the file
    type: Disk (it exists) or DiskOrCreate (made when missing)
    capacity: size in bytes of a file that is made
    shared: other nodes see the same file, so that it need not be copied by a migration
    """

    path: str
    type: str
    capacity: Quantity | None = None
    shared: bool | None = None


class MemoryDumpVolumeSource(Model, frozen=True, kw_only=True):
    """API type ``MemoryDumpVolumeSource``.

    A claim that receives dumps of the guest's memory.

    claim_name: name of the claim
    hotpluggable: it was plugged at run time
    read_only: it is only read
    """

    claim_name: str
    hotpluggable: bool | None = None
    read_only: bool | None = None


class PersistentVolumeClaimVolumeSource(Model, frozen=True, kw_only=True):
    """API type ``PersistentVolumeClaimVolumeSource``.

    A claim.

    claim_name: name of the claim
    hotpluggable: it was plugged at run time
    read_only: the guest cannot write
    """

    claim_name: str
    hotpluggable: bool | None = None
    read_only: bool | None = None


class SecretVolumeSource(Model, frozen=True, kw_only=True):
    """API type ``SecretVolumeSource``.

    The keys of a Secret.

    optional: it may be missing
    secret_name: name of the Secret
    volume_label: label of the disk that holds the files
    """

    optional: bool | None = None
    secret_name: str | None = None
    volume_label: str | None = None


class ServiceAccountVolumeSource(Model, frozen=True, kw_only=True):
    """API type ``ServiceAccountVolumeSource``.

    The token of a service account.

    service_account_name: name of the service account
    """

    service_account_name: str | None = None


class SysprepSource(Model, frozen=True, kw_only=True):
    """API type ``SysprepSource``.

    Answer files of Windows' setup; exactly one of the two.

    config_map: a ConfigMap with them
    secret: a Secret with them
    """

    config_map: LocalObjectReference | None = None
    secret: LocalObjectReference | None = None


class UtilityVolume(Model, frozen=True, kw_only=True):
    """API type ``UtilityVolume``.

    A volume for the agent's own use.

    claim_name: the PersistentVolumeClaim
    name: name of the volume
    read_only: it is only read
    type: what it is for
    """

    claim_name: str
    name: str
    read_only: bool | None = None
    type: str | None = None


class Volume(Model, frozen=True, kw_only=True):
    """API type ``Volume``.

    What backs a disk or filesystem; exactly one source.

    name: name that a disk or filesystem refers to
    cloud_init_config_drive: a cloud-init image of the kind config drive
    cloud_init_no_cloud: a cloud-init image of the kind NoCloud
    config_map: the keys of a ConfigMap, as files
    container_disk: a disk image out of a container image; writes are lost at the end
    container_path: a path of the container that QEMU runs in
    data_volume: the claim that a DataVolume fills
    downward_api: fields of the instance, as files
    downward_metrics: figures of the host, as a disk
    empty_disk: an empty disk that lives as long as the instance
    ephemeral: a claim whose content is not changed: writes are lost at the end
    host_disk: an image file of the node; never deleted
    memory_dump: a claim that receives dumps of the guest's memory
    persistent_volume_claim: a claim
    secret: the keys of a Secret, as files
    service_account: the token of the service account, as files
    sysprep: answer files of Windows' setup
    """

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
