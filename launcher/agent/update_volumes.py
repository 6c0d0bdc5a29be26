# SPDX-License-Identifier: Apache-2.0
"""Volumes of a changed manifest for an instance that runs: what may change, and the plan after it. Pure.

A volume may come as a disk or LUN of its own, and leave again if it came so; what is in a CD-ROM drive may be
taken out and put in. Where claims lie may be told then, too.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from launcher.agent.allocate import claim_place
from launcher.agent.changes import differences
from launcher.agent.disks import steps_of
from launcher.agent.draft import Site
from launcher.agent.material import material_of
from launcher.agent.port import Companions
from launcher.agent.records import InstanceRecord, LeavingDisk, PluggedVolume
from launcher.errors import Violation
from launcher.plan.context import PlanContext, plan_context
from launcher.plan.devices.disk import plan_disks, unbound_claims
from launcher.plan.devices.model import DevicesPlan, DiskPlan
from launcher.plan.media.volume import require_content
from launcher.plan.model import VMPlan
from launcher.plan.runnable import require_runnable
from launcher.plan.volume_steps import tracking_steps, volume_steps
from launcher.plan.volumes import claim_name, volume_kind
from launcher.spec.model import (
    Disk,
    DiskTarget,
    VirtualMachineInstance,
    VirtualMachineInstanceStatus,
    Volume,
    VolumeStatus,
)
from launcher.spec.path import ROOT

DISKS = "spec.domain.devices.disks"
VOLUMES = "spec.volumes"
PLUGGABLE = frozenset(
    {"containerDisk", "dataVolume", "emptyDisk", "ephemeral", "hostDisk", "persistentVolumeClaim"}
)
"""Kinds that can come to a guest that runs. KubeVirt has only claims: other volumes need other pods."""
BUSES = ("scsi", "virtio")
_RESTART = "the instance must be deleted and created anew for that"


def judged(path: str) -> bool:
    """Whether the field at ``path`` is for this module to judge."""
    return any(path == place or path.startswith(f"{place}[") for place in (DISKS, VOLUMES))


def pluggable(record: InstanceRecord, asked: VirtualMachineInstance) -> VirtualMachineInstance:
    """``asked`` with the defaults of disks that are plugged: a plain disk, on the bus scsi."""
    had = {disk.name for disk in record.defaulted.spec.domain.devices.disks}
    devices = asked.spec.domain.devices
    disks = [disk if disk.name in had else _on_scsi(disk) for disk in devices.disks]
    named = {disk.name for disk in disks} | {filesystem.name for filesystem in devices.filesystems}
    disks += [
        _on_scsi(Disk(name=volume.name))
        for volume in asked.spec.volumes
        if volume.name not in named | had and volume_kind(volume) in PLUGGABLE
    ]
    return with_disks(asked, tuple(disks), asked.spec.volumes)


def volume_violations(record: InstanceRecord, new: VirtualMachineInstance) -> Iterator[Violation]:
    """Everything about disks and volumes of the defaulted ``new`` that cannot be had while the guest runs."""
    old = record.defaulted
    disks = {disk.name: disk for disk in old.spec.domain.devices.disks}
    volumes = {volume.name: volume for volume in old.spec.volumes}
    now = {volume.name: volume for volume in new.spec.volumes}
    for index, disk in enumerate(new.spec.domain.devices.disks):
        field = f"{DISKS}[{index}]"
        was = disks.pop(disk.name, None)
        volume = now.get(disk.name)
        if was is None and (volume is None or volume_kind(volume) in PLUGGABLE):
            yield from _plugged(field, disk, new)
        elif was is not None:
            yield from _same(field, was, disk)
    for name, was in disks.items():
        if was.cdrom is not None:
            yield _violation(DISKS, name, f"a CD-ROM drive stays: remove only its volume, or {_RESTART}")
        elif not _may_leave(record, volumes.get(name)):
            yield _violation(
                DISKS, name, f"only a disk that was plugged while the guest runs can leave; {_RESTART}"
            )
    drives = {disk.name for disk in new.spec.domain.devices.disks if disk.cdrom is not None}
    for index, volume in enumerate(new.spec.volumes):
        yield from _volume(f"{VOLUMES}[{index}]", volumes.get(volume.name), volume, drives)
    for name in volumes.keys() - now.keys():
        if name not in drives and name not in disks:
            yield _violation(VOLUMES, name, f"a disk or share still uses it; {_RESTART}")


def with_disks(
    vmi: VirtualMachineInstance, disks: tuple[Disk, ...], volumes: tuple[Volume, ...]
) -> VirtualMachineInstance:
    """``vmi`` with these disks and volumes."""
    devices = replace(vmi.spec.domain.devices, disks=disks)
    domain = replace(vmi.spec.domain, devices=devices)
    return replace(vmi, spec=replace(vmi.spec, domain=domain, volumes=volumes))


def with_companions(record: InstanceRecord, beside: Companions) -> InstanceRecord:
    """The record with what came along with a change; a claim that is named again is where it is said now."""
    if beside == Companions():
        return record
    had = record.companions
    claims = {claim.claim: claim for claim in (*had.claims, *beside.claims)}
    places = {claim.claim: claim_place(claim) for claim in beside.claims}
    allocations = replace(record.allocations, claims={**record.allocations.claims, **places})
    companions = replace(had, claims=tuple(claims.values()), secrets={**had.secrets, **beside.secrets})
    return replace(record, companions=companions, allocations=allocations)


def claim_violations(record: InstanceRecord, beside: Companions) -> Iterator[Violation]:
    """A claim that is in use stays where it is; it may become larger."""
    spec = record.defaulted.spec
    used = {claim_name(volume) for volume in spec.volumes} | {v.claim_name for v in spec.utility_volumes}
    for claim in beside.claims:
        was = record.allocations.claims.get(claim.claim)
        if was is not None and claim.claim in used:
            moved = replace(was, capacity=claim.capacity) != claim_place(claim)
            if moved:
                field = f"companions.claims[{claim.claim}]"
                yield _violation(
                    field, claim.path, f"it is in use, at {was.path}: only its capacity may change"
                )


def with_planned_volumes(after: InstanceRecord, before: InstanceRecord, site: Site) -> InstanceRecord:
    """The record with the plan of its volumes. What the guest has stays as it is.

    Raises:
        HostUnsupported: a claim has no place on this node.
        InvalidRequest: a Secret that a volume needs did not come along.
    """
    old, new = before.defaulted.spec, after.defaulted.spec
    same = old.volumes == new.volumes and old.domain.devices.disks == new.domain.devices.disks
    if same and after.allocations.claims == before.allocations.claims:
        return after
    context = plan_context(targeted(after), site.facts, after.allocations, site.plan)
    require_runnable(DevicesPlan(unbound=tuple(unbound_claims(context))))
    had = {disk.name: disk for disk in before.plan.devices.disks}
    were = {volume.name: volume for volume in old.volumes}
    volumes = {volume.name: volume for volume in new.volumes}
    kept, coming = [], []
    for disk in plan_disks(context):
        was = had.pop(disk.name, None)
        if was is not None and were.get(disk.name) == volumes.get(disk.name):
            kept.append(was)
            continue
        fresh = (
            _seated(disk, before) if was is None else replace(disk, target=was.target, address=was.address)
        )
        kept.append(fresh)
        if fresh.source is not None:
            coming.append(disk.name)
        if was is not None and was.source is not None:
            had[disk.name] = was
    leaving = tuple(LeavingDisk(disk=disk, steps=steps_of(before, disk.name)) for disk in had.values())
    gone = {entry.disk.name for entry in leaving}
    plan = _with_steps(after, context, tuple(kept), gone=gone, coming=coming)
    stay = tuple(e for e in before.plugged if e.name not in gone and e.name not in coming)
    result = replace(
        after,
        plan=plan,
        plugged=(*stay, *(PluggedVolume(name=name) for name in coming)),
        leaving=(*before.leaving, *leaving),
    )
    require_content(material_of(result), tuple(s for n in coming for s in steps_of(result, n)))
    return result


def arriving(vmi: VirtualMachineInstance) -> VirtualMachineInstance:
    """``vmi`` as it came from another node, with a status that lets each volume be planned."""
    if vmi.status is None:
        return vmi
    ready = tuple(replace(volume, phase=None, hotplug_volume=None) for volume in vmi.status.volume_status)
    return replace(vmi, status=replace(vmi.status, volume_status=ready))


def plugged_before(vmi: VirtualMachineInstance) -> tuple[PluggedVolume, ...]:
    """The volumes that came to a guest while it ran on another node, by its status."""
    found = vmi.status.volume_status if vmi.status is not None else ()
    return tuple(
        PluggedVolume(name=volume.name, state="plugged")
        for volume in found
        if volume.hotplug_volume is not None
    )


def _with_steps(
    after: InstanceRecord,
    context: PlanContext,
    disks: tuple[DiskPlan, ...],
    *,
    gone: set[str],
    coming: list[str],
) -> VMPlan:
    """The plan with ``disks``, without the steps of what leaves, and with those of what comes or grew."""
    fresh = {
        volume.name: tuple(volume_steps(context, volume))
        for volume in after.defaulted.spec.volumes
        if volume.name in coming or (claim_name(volume) is not None and volume.name not in gone)
    }
    steps = []
    for step in after.plan.steps:
        name = getattr(step, "volume", None)
        if name in gone or name in coming:
            continue
        planned = fresh.get(name, ()) if name is not None else ()
        same = next((other for other in planned if _path(other) == _path(step)), None)
        steps.append(step if same is None else same)
    tracked = tuple(tracking_steps(context, (disk for disk in disks if disk.name in coming)))
    added = (step for name in coming for step in (*fresh[name], *(t for t in tracked if t.volume == name)))
    devices = replace(after.plan.devices, disks=disks)
    return replace(after.plan, devices=devices, steps=(*steps, *added))


def _path(step: object) -> str:
    return getattr(step, "path", "")


def targeted(record: InstanceRecord) -> VirtualMachineInstance:
    """The instance with the names that its disks have in the guest; those that leave keep theirs."""
    disks = (*record.plan.devices.disks, *(entry.disk for entry in record.leaving))
    known = tuple(VolumeStatus(name=disk.name, target=disk.target) for disk in disks)
    return replace(record.defaulted, status=VirtualMachineInstanceStatus(volume_status=known))


def _seated(disk: DiskPlan, record: InstanceRecord) -> DiskPlan:
    """On an I/O thread that the domain has: it gets no more of them while it runs."""
    layout = record.plan.iothreads
    if disk.iothread is None or disk.iothread <= layout.count:
        return disk
    return replace(disk, iothread=None if not layout.count else 1)


def _on_scsi(disk: Disk) -> Disk:
    if disk.cdrom is not None or (disk.disk is not None and disk.disk.bus):
        return disk
    if disk.lun is not None:
        return disk if disk.lun.bus else replace(disk, lun=replace(disk.lun, bus=BUSES[0]))
    return replace(disk, disk=replace(disk.disk or DiskTarget(), bus=BUSES[0]))


def _plugged(field: str, disk: Disk, vmi: VirtualMachineInstance) -> Iterator[Violation]:
    target = disk.disk or disk.lun
    if target is None:
        yield _violation(
            field, disk.name, f"a CD-ROM drive cannot be plugged while the guest runs; {_RESTART}"
        )
        return
    kind = "disk" if disk.disk is not None else "lun"
    buses = BUSES if disk.disk is not None else BUSES[:1]
    if target.bus not in buses:
        message = f"a {kind} that is plugged while the guest runs must be on {' or '.join(buses)}"
        yield _violation(f"{field}.{kind}.bus", target.bus or "", message)
    if disk.dedicated_io_thread:
        message = f"a guest that runs gets no more I/O threads; {_RESTART}"
        yield _violation(f"{field}.dedicatedIOThread", "true", message)
    if vmi.spec.domain.devices.disable_hotplug:
        yield _violation(field, disk.name, f"disableHotplug leaves no slot for a device; {_RESTART}")


def _same(field: str, was: Disk, now: Disk) -> Iterator[Violation]:
    for path, value in differences(was, now, ROOT):
        shown = str(value) if isinstance(value, str | int) else ""
        yield _violation(f"{field}.{path}", shown, f"cannot be changed while the guest runs; {_RESTART}")


def _volume(field: str, was: Volume | None, now: Volume, drives: set[str]) -> Iterator[Violation]:
    if was == now:
        return
    if volume_kind(now) not in PLUGGABLE or (now.name in drives and now.empty_disk is not None):
        message = (
            f"a volume of kind {volume_kind(now) or 'none'} cannot come while the guest runs; {_RESTART}"
        )
        yield _violation(field, now.name, message)
    elif was is not None and now.name not in drives:
        message = f"only what is in a CD-ROM drive can be exchanged; {_RESTART}"
        if claim_name(was) and claim_name(now):
            message = "another claim needs updateVolumesStrategy Migration, and a migration then"
        yield _violation(field, now.name, message)


def _may_leave(record: InstanceRecord, volume: Volume | None) -> bool:
    if volume is None or any(entry.name == volume.name for entry in record.plugged):
        return True
    claim = volume.persistent_volume_claim or volume.data_volume
    return claim is not None and bool(claim.hotpluggable)


def _violation(path: str, value: str, message: str) -> Violation:
    return Violation(field=path, type="Forbidden", value=value[:80], message=message)
