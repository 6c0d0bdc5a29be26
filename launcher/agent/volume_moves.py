# SPDX-License-Identifier: Apache-2.0
"""Volumes of a running instance that go to other claims: which may, and the records before and after. Pure.

The update only says where to. The instance keeps its claims until a migration has copied them, to this node
or another; what is copied is the disk, so the claims may be of different kinds and the new one larger.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import groupby

from msgspec.structs import replace

from launcher.agent.disks import unsettled
from launcher.agent.draft import Site
from launcher.agent.records import InstanceRecord, VolumeMove
from launcher.agent.update_volumes import targeted
from launcher.agent.volume_status import claim_info
from launcher.errors import Conflict, Violation
from launcher.plan.context import plan_context
from launcher.plan.devices.disk import plan_disks
from launcher.plan.devices.model import DiskPlan
from launcher.plan.steps import AnyStep, CreateImage, RequireFile
from launcher.plan.volume_steps import volume_steps
from launcher.plan.volumes import claim_name
from launcher.spec.model import StorageMigratedVolumeInfo, VirtualMachineInstance, Volume
from launcher.spec.model import VirtualMachineInstanceCondition as Condition

MIGRATION = "Migration"
STRATEGIES = ("", "Replacement", MIGRATION)
"""KubeVirt's ``updateVolumesStrategy``."""
CHANGE = "VolumesChange"
"""Condition while volumes wait for a migration, or are copied; False once that was cancelled."""
CANCELLED = "VolumesChangeCancellation"
VOLUMES = "spec.volumes"


def strategy_violations(strategy: str) -> Iterator[Violation]:
    """Whether there is such a strategy."""
    if strategy not in STRATEGIES:
        message = f"accepted are {', '.join(name for name in STRATEGIES if name)}"
        yield Violation(
            field="updateVolumesStrategy", type="FieldValueNotSupported", value=strategy[:80], message=message
        )


def asked_moves(record: InstanceRecord, asked: VirtualMachineInstance) -> tuple[VolumeMove, ...]:
    """The volumes of ``asked`` that differ from those of the instance in their claim alone."""
    drives = {disk.name for disk in record.defaulted.spec.domain.devices.disks if disk.cdrom is not None}
    had = {volume.name: volume for volume in record.defaulted.spec.volumes}
    return tuple(
        VolumeMove(to=volume)
        for volume in asked.spec.volumes
        if volume.name not in drives and _other_claim(had.get(volume.name), volume)
    )


def without_moves(
    record: InstanceRecord, asked: VirtualMachineInstance, moves: Collection[VolumeMove]
) -> VirtualMachineInstance:
    """``asked`` with the claims that the instance has."""
    moved = {move.name for move in moves}
    had = {volume.name: volume for volume in record.manifest.spec.volumes}
    return _with_volumes(asked, (had[v.name] if v.name in moved else v for v in asked.spec.volumes))


def with_moves(vmi: VirtualMachineInstance, moves: Collection[VolumeMove]) -> VirtualMachineInstance:
    """``vmi`` with the claims that the volumes go to."""
    to = {move.name: move.to for move in moves}
    return _with_volumes(vmi, (to.get(volume.name, volume) for volume in vmi.spec.volumes))


def move_violations(
    record: InstanceRecord, asked: VirtualMachineInstance, moves: Sequence[VolumeMove]
) -> Iterator[Violation]:
    """Everything about ``moves`` that cannot be; ``record`` knows the places of claims that came along."""
    places = record.allocations.claims
    busy = frozenset(unsettled(record))
    used = {claim_name(volume): volume.name for volume in record.defaulted.spec.volumes}
    used |= {v.claim_name: v.name for v in record.defaulted.spec.utility_volumes}
    seen: dict[str, str] = {}
    for move in moves:
        claim, disk = claim_name(move.to) or "", _disk(record, move.name)
        field = field_of(asked, move.name)
        why = _unfit(record, move.name, disk)
        if not why and move.name in busy:
            why = "it is being plugged or unplugged: wait for that"
        if not why and (claim in used or claim in seen):
            why = f"claim {claim!r} is that of volume {used.get(claim) or seen[claim]!r}"
        if not why and claim not in places:
            why = f"nobody said where claim {claim!r} lies: it must come along (companions.claims)"
        if why:
            yield Violation(field=field, type="Forbidden", value=claim[:80], message=f"{move.name}: {why}")
            continue
        seen[claim] = move.name
        place, was = places[claim], places.get(claim_name(_volume(record, move.name)) or "")
        if was is not None and 0 < place.capacity < was.capacity:
            message = (
                f"{move.name}: the claim has {place.capacity} bytes, less than the {was.capacity} it had"
            )
            yield Violation(field=field, type="FieldValueInvalid", value=claim[:80], message=message)


def require_idle(record: InstanceRecord) -> None:
    """Refuse moves while a copy of the guest is under way; raises Conflict."""
    if record.job is not None:
        raise Conflict(f"{record.key} is busy with its {record.job}", hint="wait for it")


def departing(record: InstanceRecord) -> VirtualMachineInstance:
    """The manifest as another node takes the instance: with the claims that its volumes go to."""
    return with_moves(record.manifest, record.moving)


def withdrawn(record: InstanceRecord) -> InstanceRecord:
    """The record when nothing is to move any more: somebody cancelled that."""
    return replace(record, moving=(), staying=record.moving or record.staying)


def moved(record: InstanceRecord, names: Collection[str], site: Site) -> InstanceRecord:
    """The record once the guest writes to the new claims of the volumes ``names``.

    Raises:
        HostUnsupported: a claim has no place on this node.
    """
    moves = [move for move in record.moving if move.name in names]
    after = replace(
        record,
        manifest=with_moves(record.manifest, moves),
        defaulted=with_moves(record.defaulted, moves),
        moving=tuple(move for move in record.moving if move.name not in names),
        staying=(),
    )
    context = plan_context(targeted(after), site.facts, after.allocations, site.plan)
    fresh = {disk.name: disk for disk in plan_disks(context)}
    # What QEMU was told about the old image stays in force until it ends.
    disks = tuple(
        replace(disk, source=fresh[disk.name].source, kind=fresh[disk.name].kind)
        if disk.name in names
        else disk
        for disk in record.plan.devices.disks
    )
    volumes = {volume.name: volume for volume in after.defaulted.spec.volumes}
    steps: list[AnyStep] = []
    for name, group in groupby(record.plan.steps, lambda step: getattr(step, "volume", None) or ""):
        steps += volume_steps(context, volumes[name]) if name in names else group
    devices = replace(record.plan.devices, disks=disks)
    return replace(after, plan=replace(record.plan, devices=devices, steps=tuple(steps)))


def arranged(steps: Sequence[AnyStep], sizes: dict[str, int]) -> tuple[AnyStep, ...]:
    """``steps`` that make the images of moved volumes as large as the guest sees them, in bytes: a copy has
    the size of what it is a copy of. What a claim has beyond that the disk grows into afterwards."""
    return tuple(_as_large(step, sizes.get(getattr(step, "volume", None) or "")) for step in steps)


def migrated_volumes(record: InstanceRecord) -> tuple[StorageMigratedVolumeInfo, ...]:
    """``status.migratedVolumes``."""
    return tuple(
        StorageMigratedVolumeInfo(
            volume_name=move.name,
            source_pvc_info=claim_info(record, claim_name(_volume(record, move.name))),
            destination_pvc_info=claim_info(record, claim_name(move.to)),
        )
        for move in record.moving
    )


def moves_condition(record: InstanceRecord) -> Iterator[Condition]:
    """The condition of volumes that are to go to other claims."""
    had = {volume.name: claim_name(volume) for volume in record.defaulted.spec.volumes}
    what = ", ".join(
        f"{move.name} from {had[move.name]} to {claim_name(move.to)}"
        for move in record.moving or record.staying
        if move.name in had
    )
    if record.moving:
        how = "being copied" if record.outgoing else "with the next migration"
        yield Condition(type=CHANGE, status="True", message=f"{what}: {how}")
    elif what:
        yield Condition(type=CHANGE, status="False", reason=CANCELLED, message=f"{what}: cancelled")


def field_of(vmi: VirtualMachineInstance, name: str) -> str:
    """The path of the field that names the claim of a volume."""
    for index, volume in enumerate(vmi.spec.volumes):
        if volume.name == name:
            kind = "dataVolume.name" if volume.data_volume is not None else "persistentVolumeClaim.claimName"
            return f"{VOLUMES}[{index}].{kind}"
    return VOLUMES


def _other_claim(had: Volume | None, now: Volume) -> bool:
    if had is None or had == now:
        return False
    was, is_ = had.persistent_volume_claim or had.data_volume, now.persistent_volume_claim or now.data_volume
    if was is None or is_ is None or claim_name(had) == claim_name(now):
        return False
    return _read_only(had) == _read_only(now) and bool(was.hotpluggable) == bool(is_.hotpluggable)


def _read_only(volume: Volume) -> bool:
    claim = volume.persistent_volume_claim
    return claim is not None and bool(claim.read_only)


def _unfit(record: InstanceRecord, name: str, disk: DiskPlan | None) -> str:
    """Why the guest cannot go on with a copy of the volume; empty: it can."""
    if any(share.name == name for share in record.plan.devices.filesystems):
        return "a share (virtiofs) cannot be copied while the guest uses it"
    if disk is None or disk.source is None:
        return "the guest has no disk of it"
    if disk.device != "disk":
        return f"a {disk.device} cannot be copied while the guest uses it"
    if disk.shareable:
        return "others may write to a shareable disk while it is copied"
    if disk.readonly:
        return "a read-only disk is not copied: give the guest the other claim as a new disk"
    if disk.tracked:
        return "its changed blocks are tracked (changedBlockTracking), and a copy has no record of them"
    return ""


def _as_large(step: AnyStep, size: int | None) -> AnyStep:
    if size is None:
        return step
    if isinstance(step, CreateImage):
        return replace(step, size=size, grow=True, fit=False)
    if isinstance(step, RequireFile) and not step.block:
        # The claim's size is not known: that of its disk is.
        return CreateImage(
            owner=step.owner,
            volume=step.volume,
            path=step.path,
            format="raw",
            size=size,
            keep=True,
            grow=True,
        )
    return step


def _disk(record: InstanceRecord, name: str) -> DiskPlan | None:
    return next((disk for disk in record.plan.devices.disks if disk.name == name), None)


def _volume(record: InstanceRecord, name: str) -> Volume:
    return next(volume for volume in record.defaulted.spec.volumes if volume.name == name)


def _with_volumes(vmi: VirtualMachineInstance, volumes: Iterator[Volume]) -> VirtualMachineInstance:
    return replace(vmi, spec=replace(vmi.spec, volumes=tuple(volumes)))
