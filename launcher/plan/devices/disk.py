# SPDX-License-Identifier: Apache-2.0
"""``spec.domain.devices.disks`` -> DiskPlan. Pure; what the file decides (cache, io) is in ``observed``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from launcher.errors import InvalidSpec, Violation
from launcher.plan.context import PlanContext
from launcher.plan.devices.model import BlockSizes, DiskPlan, Unbound
from launcher.plan.devices.pciaddress import pci_address
from launcher.plan.devices.target import position, target_names
from launcher.plan.devices.versions import DATA_STORE, DISCARD_GRANULARITY, RESERVATION_MIGRATION
from launcher.plan.iothreads import disk_bus
from launcher.plan.versions import DISK_IOTHREAD_MAPPING
from launcher.plan.volumes import VolumePlace, claim_name, volume_place
from launcher.spec.model import Disk, Volume, VolumeStatus

# Where the system's qemu-pr-helper.socket unit listens.
RESERVATION_SOCKET = "/run/qemu-pr-helper.sock"

# Volumes that pass discards on even when a CD-ROM drive holds them.
_ALWAYS_DISCARD = frozenset(
    {"containerDisk", "dataVolume", "emptyDisk", "ephemeral", "persistentVolumeClaim"}
)

# Volumes whose changed blocks can be tracked: KubeVirt's (claims and hostDisk), and images of our own.
TRACKABLE = frozenset({*_ALWAYS_DISCARD, "hostDisk"})

# Phases in which the files of a hot-plugged volume are on the node.
_PLUGGED_PHASES = frozenset({"MountedToPod", "Ready"})


def plan_disks(context: PlanContext) -> tuple[DiskPlan, ...]:
    """Plan every disk that is to be in the domain, in the manifest's order.

    Raises:
        InvalidSpec: a disk other than an empty CD-ROM drive names no volume.
    """
    statuses = _statuses(context)
    disks = [
        (index, disk)
        for index, disk in enumerate(context.devices.disks)
        if _is_plugged(statuses.get(disk.name))
    ]
    known = {name: status.target for name, status in statuses.items() if status.target}
    targets = target_names([(disk.name, bus_of(context, disk)) for _, disk in disks], known)
    volumes = {volume.name: volume for volume in context.vmi.spec.volumes}
    return tuple(
        _disk(context, index, disk, targets[disk.name], volumes.get(disk.name), statuses.get(disk.name))
        for index, disk in disks
    )


def unbound_claims(context: PlanContext) -> Iterator[Unbound]:
    """Claims that the manifest uses and the allocations do not place."""
    for index, volume in enumerate(context.vmi.spec.volumes):
        claim = claim_name(volume)
        if claim is not None and claim not in context.allocations.claims:
            yield Unbound(field=f"spec.volumes[{index}]", kind="claim", name=claim)


def bus_of(context: PlanContext, disk: Disk) -> str:
    """The disk's bus, or its architecture's default."""
    return disk_bus(disk) or ("sata" if context.arch.name == "amd64" else "virtio")


def _statuses(context: PlanContext) -> dict[str, VolumeStatus]:
    status = context.vmi.status
    return {volume.name: volume for volume in status.volume_status} if status is not None else {}


def _is_plugged(status: VolumeStatus | None) -> bool:
    return status is None or status.hotplug_volume is None or status.phase in _PLUGGED_PHASES


def _disk(
    context: PlanContext,
    index: int,
    disk: Disk,
    target: str,
    volume: Volume | None,
    status: VolumeStatus | None,
) -> DiskPlan:
    field = f"spec.domain.devices.disks[{index}]"
    bus = bus_of(context, disk)
    device = _device(disk)
    if volume is None and disk.cdrom is None:
        message = "no volume has this name; only a CD-ROM drive may be empty"
        raise InvalidSpec(
            [Violation(field=f"{field}.name", type="FieldValueNotFound", value=disk.name, message=message)]
        )
    place = volume_place(context, volume) if volume is not None else None
    claim = context.allocations.claims.get((claim_name(volume) if volume is not None else None) or "")
    if device == "lun" and claim is not None and not claim.block:
        message = "a lun hands a block device to the guest, and this claim is an image"
        raise InvalidSpec([Violation(field=f"{field}.lun", type="FieldValueInvalid", message=message)])
    plain, virtio = device == "disk", bus == "virtio"
    reserved = disk.lun is not None and bool(disk.lun.reservation)
    shareable = plain and bool(disk.shareable)
    readonly = _readonly(disk, bus, place)
    tracked = not readonly and not shareable and _is_tracked(disk, device, place)
    tracking = context.paths.tracking(disk.name) if tracked and place and place.format == "raw" else None
    return DiskPlan(
        name=disk.name,
        device=device,
        bus=bus,
        target=target,
        kind=place.kind if place else "",
        source=place.source if place else None,
        format=place.format if place else "raw",
        backing=place.backing if place else None,
        model=context.virtio_model if plain and virtio else None,
        unit=position(target) if bus == "scsi" else None,
        address=pci_address(disk.disk.pci_address, field=f"{field}.disk.pciAddress") if disk.disk else None,
        boot_order=disk.boot_order or None,
        readonly=readonly,
        shareable=shareable,
        serial=(disk.serial or None) if plain else None,
        tray=(disk.cdrom.tray or "closed") if disk.cdrom is not None else None,
        cache="none" if shareable else disk.cache,
        io=disk.io,
        discard=_discard(device, place, status),
        error_policy=disk.error_policy or "stop",
        queues=max(1, context.topology.current) if virtio and context.devices.block_multi_queue else None,
        iothread=_iothread(context, disk) if virtio else None,
        iothreads=_iothreads(context) if virtio else (),
        iommu=virtio and context.iommu,
        block_sizes=_block_sizes(context, disk),
        match_volume=_matches_volume(disk),
        tracked=tracked,
        tracking=tracking,
        data_store=tracking is not None and context.facts.libvirt_version >= DATA_STORE,
        reservation_socket=RESERVATION_SOCKET if reserved else None,
        reservation_migration=reserved and context.facts.libvirt_version >= RESERVATION_MIGRATION,
    )


def _is_tracked(disk: Disk, device: str, place: VolumePlace | None) -> bool:
    """What a guest writes to, and what lasts or is ours: the rest has nothing to be tracked."""
    asked = bool(disk.changed_block_tracking) and device == "disk"
    return asked and place is not None and place.kind in TRACKABLE


def _device(disk: Disk) -> Literal["disk", "lun", "cdrom"]:
    if disk.cdrom is not None:
        return "cdrom"
    return "lun" if disk.lun is not None else "disk"


def _readonly(disk: Disk, bus: str, place: VolumePlace | None) -> bool:
    if place is not None and place.kind == "downwardMetrics":
        return True
    # A disk on SATA cannot be read-only; the plan's notes say so.
    if place is not None and place.readonly and bus != "sata":
        return True
    if disk.cdrom is not None:
        return disk.cdrom.readonly is not False
    target = disk.lun or disk.disk
    return target is not None and bool(target.readonly)


def _discard(device: str, place: VolumePlace | None, status: VolumeStatus | None) -> bool:
    if place is None or place.kind == "downwardMetrics":
        return False
    claim = status.persistent_volume_claim_info if status is not None else None
    if place.preallocated or (claim is not None and claim.preallocated):
        return False
    return device != "cdrom" or place.kind in _ALWAYS_DISCARD


def _iothread(context: PlanContext, disk: Disk) -> int | None:
    pool = context.iothreads.pool
    if pool and not _maps_iothreads(context):
        # REQUIRED_FOR: libvirt < 10.0, which gives a disk one thread: deal the pool out in turn.
        virtio = [other.name for other in context.devices.disks if bus_of(context, other) == "virtio"]
        return pool[virtio.index(disk.name) % len(pool)]
    return context.iothreads.disks.get(disk.name)


def _iothreads(context: PlanContext) -> tuple[int, ...]:
    return context.iothreads.pool if _maps_iothreads(context) else ()


def _maps_iothreads(context: PlanContext) -> bool:
    return context.facts.libvirt_version >= DISK_IOTHREAD_MAPPING


def _block_sizes(context: PlanContext, disk: Disk) -> BlockSizes | None:
    custom = disk.block_size.custom if disk.block_size is not None else None
    if custom is None:
        return None
    granularity = custom.discard_granularity
    # REQUIRED_FOR: libvirt 9.0, whose schema lacks the attribute; libvirt < 11.6 takes a 0 for "not given".
    if context.facts.libvirt_version < DISCARD_GRANULARITY:
        granularity = None
    return BlockSizes(logical=custom.logical, physical=custom.physical, discard_granularity=granularity)


def _matches_volume(disk: Disk) -> bool:
    match = disk.block_size.match_volume if disk.block_size is not None else None
    return match is not None and match.enabled is not False
