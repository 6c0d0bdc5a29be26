# SPDX-License-Identifier: Apache-2.0
"""Volumes as the API shows them: how far each is that comes or goes, its size, what is wrong. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.agent.disks import (
    ChangeMedia,
    DiskStep,
    DropVolume,
    MakeVolume,
    NotePlugged,
    PlugDisk,
    UnplugDisk,
    disk_steps,
    volume_phase,
)
from launcher.agent.growth import growth_steps
from launcher.agent.hotplug import Attempts, Hardware, disk_of, growth_of
from launcher.agent.records import InstanceRecord
from launcher.plan.devices.model import DiskPlan
from launcher.plan.volumes import claim_name
from launcher.spec.model import (
    HotplugVolumeStatus,
    PersistentVolumeClaimInfo,
    VolumeStatus,
)
from launcher.spec.model import VirtualMachineInstanceCondition as Condition
from launcher.spec.quantity import Quantity
from launcher.units import human_bytes

CHANGE = "HotVolumeChange"
"""Condition while volumes come, go or grow; False: something of it was given up."""


def volume_status(record: InstanceRecord, hardware: Hardware) -> tuple[VolumeStatus, ...]:
    """All volumes that are disks, then those that leave."""
    shown = [_volume(record, disk, hardware) for disk in record.plan.devices.disks if disk.source is not None]
    names = {status.name for status in shown}
    shown += [
        _volume(record, entry.disk, hardware) for entry in record.leaving if entry.disk.name not in names
    ]
    return tuple(shown)


def changing_volumes(record: InstanceRecord, hardware: Hardware) -> Iterator[Condition]:
    """The condition of changes under way."""
    found: list[tuple[str, Attempts]] = []
    if hardware.live is not None:
        found += [
            (_words(step), hardware.of_disk(disk_of(step.name)))
            for step in disk_steps(record, hardware.live)
            if not isinstance(step, NotePlugged)
        ]
    for growth in growth_steps(record, hardware.sizes):
        what = f"volume {growth.disk.name!r} is growing to {human_bytes(growth.size)}"
        found.append((what, hardware.of_disk(growth_of(growth.disk.name))))
    if not found:
        return
    message = "; ".join(f"{what}: {tries.error}" if tries.error else what for what, tries in found)
    if any(tries.exhausted for _, tries in found):
        yield Condition(type=CHANGE, status="False", reason="VolumeChangeFailed", message=message)
        return
    reason = next((tries.reason for _, tries in found if tries.reason), None)
    yield Condition(type=CHANGE, status="True", reason=reason, message=message)


def _volume(record: InstanceRecord, disk: DiskPlan, hardware: Hardware) -> VolumeStatus:
    phase = volume_phase(record, disk.name, hardware.live)
    size = next((size.guest for size in hardware.sizes if size.name == disk.name), None)
    reason, message = _complaint(record, disk.name, hardware)
    return VolumeStatus(
        name=disk.name,
        target=disk.target,
        phase=phase,
        reason=reason or None,
        message=message or None,
        hotplug_volume=HotplugVolumeStatus() if phase is not None else None,
        persistent_volume_claim_info=_claim(record, disk.name) if phase is not None else None,
        size=size,
    )


def _complaint(record: InstanceRecord, name: str, hardware: Hardware) -> tuple[str, str]:
    """Why the volume is not as it should be, in one word and in a sentence."""
    trouble = next((trouble for trouble in hardware.troubles if trouble.name == name), None)
    if trouble is not None:
        return trouble.reason, trouble.message
    for tries in (hardware.of_disk(disk_of(name)), hardware.of_disk(growth_of(name))):
        if tries.error:
            return tries.reason, tries.error
    if record.sync_volume == name:
        return record.sync_reason, record.sync_error
    return "", ""


def _claim(record: InstanceRecord, name: str) -> PersistentVolumeClaimInfo | None:
    volume = next((v for v in record.defaulted.spec.volumes if v.name == name), None)
    return claim_info(record, claim_name(volume) if volume is not None else None)


def claim_info(record: InstanceRecord, claim: str | None) -> PersistentVolumeClaimInfo | None:
    """What is known of a claim of the instance; None: nothing."""
    place = record.allocations.claims.get(claim or "")
    if claim is None or place is None:
        return None
    return PersistentVolumeClaimInfo(
        claim_name=claim,
        capacity={"storage": Quantity(place.capacity)} if place.capacity else {},
        volume_mode="Block" if place.block else "Filesystem",
        preallocated=place.preallocated or None,
    )


def _words(step: DiskStep) -> str:
    match step:
        case MakeVolume():
            return f"volume {step.name!r} is being prepared"
        case PlugDisk():
            return f"volume {step.name!r} is being plugged"
        case UnplugDisk():
            return f"the guest is asked for volume {step.name!r}"
        case ChangeMedia(empty=True):
            return f"volume {step.name!r} is being taken out of its drive"
        case ChangeMedia():
            return f"volume {step.name!r} is being put into its drive"
        case DropVolume():
            return f"what was made for volume {step.name!r} is being removed"
        case NotePlugged():
            return f"the guest has volume {step.name!r}"
