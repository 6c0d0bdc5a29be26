# SPDX-License-Identifier: Apache-2.0
"""Disks of a running guest: those that are planned against those that the domain has. Pure.

As with ``nics``, the domain's live XML is the truth about what it has. The files of a volume are there before
the guest gets it, and what was made for it goes when the guest has given it back.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from msgspec.structs import replace

from launcher.agent.records import InstanceRecord, LeavingDisk, PluggedVolume
from launcher.domain.read import DiskView, DomainView
from launcher.errors import HostUnsupported
from launcher.plan.devices.model import DiskPlan, PciAddress
from launcher.plan.steps import AnyStep


@dataclass(frozen=True, slots=True)
class MakeVolume:
    """Make what the volume of ``disk`` needs, and look at it."""

    disk: DiskPlan
    steps: tuple[AnyStep, ...]

    @property
    def name(self) -> str:
        """The volume."""
        return self.disk.name


@dataclass(frozen=True, slots=True)
class PlugDisk:
    """Give the guest the disk; ``port`` is a root port that is free for it."""

    disk: DiskPlan
    port: int | None = None

    @property
    def name(self) -> str:
        """The volume."""
        return self.disk.name


@dataclass(frozen=True, slots=True)
class UnplugDisk:
    """Ask the guest for the disk."""

    disk: DiskPlan

    @property
    def name(self) -> str:
        """The volume."""
        return self.disk.name


@dataclass(frozen=True, slots=True)
class ChangeMedia:
    """Put into a CD-ROM drive what ``disk`` says, or take out what is in it."""

    disk: DiskPlan
    empty: bool

    @property
    def name(self) -> str:
        """The volume."""
        return self.disk.name


@dataclass(frozen=True, slots=True)
class NotePlugged:
    """Remember that the guest has the volume."""

    name: str


@dataclass(frozen=True, slots=True)
class DropVolume:
    """Undo what was made for a volume that the guest has no more."""

    leaving: LeavingDisk

    @property
    def name(self) -> str:
        """The volume."""
        return self.leaving.disk.name


DiskStep = MakeVolume | PlugDisk | UnplugDisk | ChangeMedia | NotePlugged | DropVolume

Phase = Literal["Pending", "MountedToPod", "Ready", "Detaching", "UnMountedFromPod"]
"""Names of KubeVirt's phases that a node can tell apart: nothing is made yet; the files are there; the guest
has the disk; it is asked to give it back; it has done so, and what was made is being removed."""


def disk_steps(record: InstanceRecord, live: DomainView) -> Iterator[DiskStep]:
    """The next step of each volume that is not as it should be; one waits for no other."""
    there = {disk.alias: disk for disk in live.disks}
    gone = {leaving.disk.name: leaving for leaving in record.leaving}
    for name, leaving in gone.items():
        yield _leave(leaving, there.get(name))
    planned = {disk.name: disk for disk in record.plan.devices.disks}
    for volume in record.plugged:
        if volume.name in gone or volume.name not in planned:
            continue
        step = _come(record, planned[volume.name], volume, there.get(volume.name), live)
        if step is not None:
            yield step


def volume_phase(record: InstanceRecord, name: str, live: DomainView | None) -> Phase | None:
    """How far a volume is that comes or goes; None for one that was there from the start."""
    leaving = next((entry for entry in record.leaving if entry.disk.name == name), None)
    seen = next((d for d in live.disks if d.alias == name), None) if live is not None else None
    if leaving is not None:
        return "Detaching" if live is None or _holds(leaving.disk, seen) else "UnMountedFromPod"
    volume = next((entry for entry in record.plugged if entry.name == name), None)
    if volume is None:
        return None
    if volume.state == "wanted":
        return "Pending"
    disk = next((disk for disk in record.plan.devices.disks if disk.name == name), None)
    if live is None or disk is None:
        return "Ready" if volume.state == "plugged" else "MountedToPod"
    return "Ready" if _holds(disk, seen) else "MountedToPod"


def unsettled(record: InstanceRecord) -> tuple[str, ...]:
    """Volumes that come or go, in no particular state."""
    coming = [volume.name for volume in record.plugged if volume.state != "plugged"]
    return tuple(dict.fromkeys([*coming, *(leaving.disk.name for leaving in record.leaving)]))


def with_made(record: InstanceRecord, disk: DiskPlan, steps: tuple[AnyStep, ...]) -> InstanceRecord:
    """The record once the files of ``disk`` are there: with what was found on the way."""
    devices, plan = record.plan.devices, record.plan
    disks = tuple(disk if other.name == disk.name else other for other in devices.disks)
    rest = tuple(step for step in plan.steps if volume_of(step) != disk.name)
    plan = replace(plan, devices=replace(devices, disks=disks), steps=(*rest, *steps))
    return with_state(replace(record, plan=plan), disk.name, "made")


def with_state(
    record: InstanceRecord, name: str, state: Literal["wanted", "made", "plugged"]
) -> InstanceRecord:
    """The record whose plugged volume ``name`` got so far; one that was taken back meanwhile stays so."""
    return replace(
        record,
        plugged=tuple(
            replace(entry, state=state) if entry.name == name else entry for entry in record.plugged
        ),
    )


def without_leaving(record: InstanceRecord, leaving: LeavingDisk) -> InstanceRecord:
    """The record once nothing is left of ``leaving``."""
    return replace(record, leaving=tuple(entry for entry in record.leaving if entry != leaving))


def placed(step: PlugDisk) -> DiskPlan:
    """The disk on a port of its own, the same in the running domain and in its definition.

    Raises:
        HostUnsupported: a virtio disk, and no port is free.
    """
    if step.disk.bus != "virtio" or step.disk.address is not None:
        return step.disk
    if step.port is None:
        raise HostUnsupported(
            "PCI slots",
            f"no root port of the guest is free for disk {step.disk.name!r}",
            hint="use bus scsi, or unplug something",
        )
    return replace(step.disk, address=PciAddress(bus=step.port, slot=0))


def volume_of(step: AnyStep) -> str | None:
    """The volume that a step is for."""
    return getattr(step, "volume", None)


def steps_of(record: InstanceRecord, name: str) -> tuple[AnyStep, ...]:
    """The steps of a volume, in the order of making."""
    return tuple(step for step in record.plan.steps if volume_of(step) == name)


def _leave(leaving: LeavingDisk, seen: DiskView | None) -> DiskStep:
    if not _holds(leaving.disk, seen):
        return DropVolume(leaving)
    if leaving.disk.device == "cdrom":
        return ChangeMedia(leaving.disk, empty=True)
    return UnplugDisk(leaving.disk)


def _come(
    record: InstanceRecord, disk: DiskPlan, volume: PluggedVolume, seen: DiskView | None, live: DomainView
) -> DiskStep | None:
    if volume.state == "wanted":
        return MakeVolume(disk, steps_of(record, disk.name))
    if _holds(disk, seen):
        return NotePlugged(disk.name) if volume.state == "made" else None
    if disk.device == "cdrom":
        return ChangeMedia(disk, empty=False) if seen is not None else None
    return PlugDisk(disk, next(iter(live.free_ports), None))


def _holds(disk: DiskPlan, seen: DiskView | None) -> bool:
    """Whether the domain has the disk, or something in the drive: nothing else is put into it before."""
    return seen is not None and (disk.device != "cdrom" or bool(seen.source))
