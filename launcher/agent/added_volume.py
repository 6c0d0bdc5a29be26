# SPDX-License-Identifier: Apache-2.0
"""A request to plug or unplug one volume -> the manifest with it or without it. Pure."""

from __future__ import annotations

from msgspec.structs import replace

from launcher.agent.port import AddedVolume
from launcher.agent.records import InstanceRecord
from launcher.agent.update_volumes import with_disks
from launcher.errors import AlreadyExists, InvalidRequest, NotFound, Violation
from launcher.plan.volumes import claim_name, volume_kind
from launcher.spec.model import Disk, VirtualMachineInstance, Volume


def with_volume(record: InstanceRecord, options: AddedVolume) -> VirtualMachineInstance:
    """The manifest of ``record`` with the volume at the end of its list, and its disk.

    Raises:
        AlreadyExists: there is a volume of that name, or of that claim.
        InvalidRequest: the options contradict themselves or the drive that they name.
    """
    manifest, volume = record.manifest, options.volume
    had = record.defaulted.spec.volumes
    if any(other.name == volume.name for other in had):
        raise AlreadyExists("volume", volume.name, hint="remove it first, or choose another name")
    claim = claim_name(volume)
    twin = next((other for other in had if claim is not None and claim_name(other) == claim), None)
    if twin is not None:
        raise AlreadyExists("volume of the claim", claim or "", hint=f"it is volume {twin.name!r} already")
    volumes = (*manifest.spec.volumes, _hotpluggable(volume))
    disks = manifest.spec.domain.devices.disks
    drive = next(
        (disk for disk in record.defaulted.spec.domain.devices.disks if disk.name == volume.name), None
    )
    asked = options.disk
    if asked is not None and asked.name not in ("", volume.name):
        raise _invalid("disk.name", asked.name, f"must be that of the volume, {volume.name}")
    if drive is not None:
        if asked is not None and asked.cdrom is None and asked != Disk(name=asked.name):
            raise _invalid("disk", volume.name, "there is a CD-ROM drive of that name: leave out the disk")
        return with_disks(manifest, disks, volumes)
    disk = replace(asked, name=volume.name) if asked is not None else Disk(name=volume.name)
    return with_disks(manifest, (*disks, disk), volumes)


def without_volume(record: InstanceRecord, name: str) -> VirtualMachineInstance:
    """The manifest of ``record`` without the volume and its disk; a CD-ROM drive stays, empty.

    Raises:
        NotFound: it has no volume of that name.
    """
    manifest = record.manifest
    if all(volume.name != name for volume in record.defaulted.spec.volumes):
        names = ", ".join(volume.name for volume in record.defaulted.spec.volumes)
        raise NotFound("volume", name, hint=f"{record.key} has {names or 'none'}")
    drives = {disk.name for disk in record.defaulted.spec.domain.devices.disks if disk.cdrom is not None}
    disks = manifest.spec.domain.devices.disks
    kept = tuple(disk for disk in disks if disk.name != name or name in drives)
    return with_disks(manifest, kept, tuple(v for v in manifest.spec.volumes if v.name != name))


def _hotpluggable(volume: Volume) -> Volume:
    if volume_kind(volume) == "persistentVolumeClaim" and volume.persistent_volume_claim is not None:
        claim = replace(volume.persistent_volume_claim, hotpluggable=True)
        return replace(volume, persistent_volume_claim=claim)
    if volume_kind(volume) == "dataVolume" and volume.data_volume is not None:
        return replace(volume, data_volume=replace(volume.data_volume, hotpluggable=True))
    return volume


def _invalid(field: str, value: str, message: str) -> InvalidRequest:
    return InvalidRequest(
        [Violation(field=field, type="FieldValueInvalid", value=value[:80], message=message)]
    )
