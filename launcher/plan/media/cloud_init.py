# SPDX-License-Identifier: Apache-2.0
"""The files of both cloud-init data sources. Pure; the formats are cloud-init's NoCloud and OpenStack's."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator
from typing import Any

from launcher.errors import InvalidSpec, Violation
from launcher.plan.devices.model import DiskPlan, PciAddress
from launcher.plan.media.credentials import FIELD, public_keys
from launcher.plan.media.material import Material, MediaFile, missing
from launcher.spec.model import (
    CloudInitConfigDriveSource,
    CloudInitNoCloudSource,
    LocalObjectReference,
    Volume,
)

HOSTNAME_LENGTH = 63

# A cluster-wide type goes before one of the namespace.
_INSTANCE_TYPES = ("kubevirt.io/cluster-instancetype-name", "kubevirt.io/instancetype-name")
_USER_KEYS = ("userdata", "userData")
_NETWORK_KEYS = ("networkdata", "networkData")
_OPENSTACK = "openstack/latest"
_EVERYWHERE = 0o444

Source = CloudInitNoCloudSource | CloudInitConfigDriveSource


def no_cloud_files(
    material: Material, volume: Volume, source: CloudInitNoCloudSource
) -> tuple[MediaFile, ...]:
    """``meta-data``, ``user-data`` and, when given, ``network-config``.

    Raises:
        InvalidRequest: a Secret is missing or has no such key. InvalidSpec: base64 that is none, or no data.
    """
    user, network = _data(material, volume, source)
    metadata: dict[str, Any] = {
        "instance-type": _instance_type(material),
        "instance-id": material.uuid,
        "local-hostname": hostname(material),
        "public-keys": _numbered(_public_keys(material, config_drive=False)),
    }
    files = [
        MediaFile(path="meta-data", data=_json(metadata), mode=_EVERYWHERE),
        MediaFile(path="user-data", data=user or b"", mode=_EVERYWHERE),
    ]
    if network is not None:
        files.append(MediaFile(path="network-config", data=network, mode=_EVERYWHERE))
    return tuple(files)


def config_drive_files(
    material: Material, volume: Volume, source: CloudInitConfigDriveSource
) -> tuple[MediaFile, ...]:
    """``meta_data.json``, ``user_data`` and perhaps ``network_data.json``; raises as ``no_cloud_files``."""
    user, network = _data(material, volume, source)
    metadata: dict[str, Any] = {
        "instance_type": _instance_type(material),
        "instance_id": f"{material.name}.{material.namespace}",
        "hostname": hostname(material),
        "uuid": material.uuid,
        "devices": list(_devices(material)),
        "public_keys": _numbered(_public_keys(material, config_drive=True)),
    }
    files = [
        MediaFile(path=f"{_OPENSTACK}/meta_data.json", data=_json(metadata), mode=_EVERYWHERE),
        MediaFile(path=f"{_OPENSTACK}/user_data", data=user or b"", mode=_EVERYWHERE),
    ]
    if network is not None:
        files.append(MediaFile(path=f"{_OPENSTACK}/network_data.json", data=network, mode=_EVERYWHERE))
    return tuple(files)


def hostname(material: Material) -> str:
    """``spec.hostname``, else the instance's name up to the first dot."""
    return (material.vmi.spec.hostname or material.name.partition(".")[0])[:HOSTNAME_LENGTH]


def _data(material: Material, volume: Volume, source: Source) -> tuple[bytes | None, bytes | None]:
    """User data and network data. A Secret goes before inline text, and that before base64."""
    user = _secret(material, volume, source.secret_ref, _USER_KEYS)
    if user is None:
        user = _inline(volume, "userData", source.user_data, source.user_data_base64)
    network = _secret(material, volume, source.network_data_secret_ref, _NETWORK_KEYS)
    if network is None:
        network = _inline(volume, "networkData", source.network_data, source.network_data_base64)
    if not user and not network:
        message = "neither user data nor network data is given"
        raise InvalidSpec(
            [Violation(field=f"spec.volumes[{volume.name}]", type="FieldValueRequired", message=message)]
        )
    return user, network


def _secret(
    material: Material, volume: Volume, reference: LocalObjectReference | None, keys: tuple[str, ...]
) -> bytes | None:
    if reference is None or not reference.name:
        return None
    data = material.secret(reference.name, field=f"volume {volume.name!r}")
    for key in keys:
        if key in data:
            return data[key]
    raise missing(
        f"companions.secrets[{reference.name}]",
        f"volume {volume.name!r} needs one of the keys {', '.join(keys)} in it",
    )


def _inline(volume: Volume, field: str, text: str | None, encoded: str | None) -> bytes | None:
    if text:
        return text.encode()
    if not encoded:
        return None
    try:
        return base64.b64decode("".join(encoded.split()), validate=True)
    except binascii.Error as error:
        place = f"spec.volumes[{volume.name}].{field}Base64"
        raise InvalidSpec(
            [Violation(field=place, type="FieldValueInvalid", message="must be base64")]
        ) from error


def _instance_type(material: Material) -> str | None:
    annotations = material.vmi.metadata.annotations if material.vmi.metadata else {}
    return next((annotations[name] for name in _INSTANCE_TYPES if annotations.get(name)), None)


def _public_keys(material: Material, *, config_drive: bool) -> Iterator[str]:
    """Keys that are to reach the guest this way: each value of the Secrets is one, or several in lines."""
    for credential in material.vmi.spec.access_credentials:
        ssh = credential.ssh_public_key
        if ssh is None or ssh.source.secret is None:
            continue
        method = ssh.propagation_method
        if (method.config_drive if config_drive else method.no_cloud) is None:
            continue
        data = material.secret(ssh.source.secret.secret_name, field=FIELD)
        yield from public_keys(data)


def _numbered(keys: Iterator[str]) -> dict[str, str]:
    return {str(number): key for number, key in enumerate(keys)}


def _devices(material: Material) -> Iterator[dict[str, Any]]:
    """What has a tag, with the address at which the guest finds it."""
    tags = {nic.name: nic.tag for nic in material.vmi.spec.domain.devices.interfaces if nic.tag}
    for interface in material.devices.interfaces:
        tag = tags.get(interface.name)
        if tag and interface.address is not None:
            found = {"type": "nic", "bus": "pci", "address": _address(interface.address)}
            yield {**found, **({"mac": interface.mac} if interface.mac else {}), "tags": [tag]}
    devices = material.vmi.spec.domain.devices
    labels = {disk.name: disk.tag for disk in devices.disks if disk.tag}
    for disk in material.devices.disks:
        if disk.name in labels:
            yield {**_of_disk(disk), "tags": [labels[disk.name]]}
    named = {device.name: device.tag for device in devices.host_devices if device.tag}
    named |= {device.name: device.tag for device in devices.gpus if device.tag}
    for hostdev in material.devices.hostdevs:
        if hostdev.address is None:
            continue
        if hostdev.name in tags:
            yield {
                "type": "nic",
                "bus": "pci",
                "address": _address(hostdev.address),
                "tags": [tags[hostdev.name]],
            }
        elif hostdev.name in named:
            found = {"type": "hostdev", "bus": "pci", "address": _address(hostdev.address)}
            yield {**found, "tags": [named[hostdev.name]]}


def _of_disk(disk: DiskPlan) -> dict[str, Any]:
    """A disk as OpenStack's metadata tells of it; one on SATA or USB is known by its serial number only."""
    found: dict[str, Any] = {"type": "disk", "bus": "pci" if disk.bus == "virtio" else disk.bus}
    if disk.address is not None:
        found["address"] = _address(disk.address)
    elif disk.unit is not None:
        found["address"] = f"0:0:0:{disk.unit}"
    return {**found, "serial": disk.serial} if disk.serial else found


def _address(address: PciAddress) -> str:
    return f"{address.domain:04x}:{address.bus:02x}:{address.slot:02x}.{address.function:x}"


def _json(value: dict[str, Any]) -> bytes:
    """Without what is empty; always the same text for the same values."""
    kept = {key: item for key, item in value.items() if item}
    return json.dumps(kept, separators=(",", ":"), ensure_ascii=False).encode()
