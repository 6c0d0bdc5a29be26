# SPDX-License-Identifier: Apache-2.0
"""Utility volumes of an instance that runs: claims that its dumps and backups go to. Pure.

The guest never sees them and nothing is made for them: a claim must be a directory, and it is the user's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from msgspec.structs import replace

from launcher.agent.records import InstanceRecord
from launcher.errors import Conflict, InvalidRequest, Violation
from launcher.plan.allocations import ClaimPlace
from launcher.plan.devices.model import DevicesPlan, Unbound
from launcher.plan.runnable import require_runnable
from launcher.plan.volumes import IMAGE_SUFFIXES
from launcher.spec.model import (
    PersistentVolumeClaimInfo,
    Quantity,
    UtilityVolume,
    VirtualMachineInstance,
    VolumeStatus,
)

FIELD: Final = "spec.utilityVolumes"
Use = Literal["MemoryDump", "Backup"]
_WORDS: Final = {"MemoryDump": "memory dumps", "Backup": "backups"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """The directory of a utility volume, and whether it is to be written to."""

    name: str
    path: str
    writes: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderState:
    """What was seen of the directory of a utility volume: what is wrong, in one word and in a sentence.

    ``message`` empty: nothing is.
    """

    folder: Folder
    reason: str = ""
    message: str = ""


def judged(path: str) -> bool:
    """Whether the field at ``path`` is for this module to judge."""
    return path == FIELD or path.startswith(f"{FIELD}[")


def with_utilities(vmi: VirtualMachineInstance, volumes: tuple[UtilityVolume, ...]) -> VirtualMachineInstance:
    """``vmi`` with these utility volumes."""
    return replace(vmi, spec=replace(vmi.spec, utility_volumes=volumes))


def utility_violations(record: InstanceRecord, new: VirtualMachineInstance) -> Iterator[Violation]:
    """What is another than it was: a utility volume comes and goes as a whole."""
    were = {volume.name: volume for volume in record.defaulted.spec.utility_volumes}
    for index, volume in enumerate(new.spec.utility_volumes):
        if were.get(volume.name, volume) != volume:
            message = "cannot be changed: remove it first, then add it as it is to be"
            yield Violation(
                field=f"{FIELD}[{index}]", type="Forbidden", value=volume.name[:80], message=message
            )


def require_directories(record: InstanceRecord) -> None:
    """Check that each claim is bound to a directory of this node, whether that is there or not.

    Raises:
        HostUnsupported: a claim has no place here. InvalidRequest: it is a disk.
    """
    places, volumes = record.allocations.claims, record.defaulted.spec.utility_volumes
    unbound = tuple(
        Unbound(field=f"{FIELD}[{index}]", kind="claim", name=volume.claim_name)
        for index, volume in enumerate(volumes)
        if volume.claim_name not in places
    )
    require_runnable(DevicesPlan(unbound=unbound))
    found = [
        _invalid(
            f"{FIELD}[{index}].claimName",
            volume.claim_name,
            f"claim {volume.claim_name} is a disk; a utility volume needs a directory",
        )
        for index, volume in enumerate(volumes)
        if _is_disk(places[volume.claim_name])
    ]
    if found:
        raise InvalidRequest(found)


def only_leave(old: VirtualMachineInstance, new: VirtualMachineInstance) -> bool:
    """Whether ``new`` is ``old`` with fewer utility volumes: that is no affair of the guest."""
    stay = new.spec.utility_volumes
    return with_utilities(old, stay) == new and all(volume in old.spec.utility_volumes for volume in stay)


def require_unused(record: InstanceRecord, new: VirtualMachineInstance) -> None:
    """Check that nothing is being written to what leaves; raises Conflict."""
    job = record.job
    names = {volume.name for volume in new.spec.utility_volumes}
    if job is not None and job.volume and job.volume not in names:
        raise Conflict(
            f"utility volume {job.volume} of {record.key} cannot leave: {job} is being written to it",
            hint="wait for it, or abort it",
        )


def require_present(record: InstanceRecord, name: str) -> None:
    """Check that the utility volume ``name`` (empty: none is needed) has not left; raises Conflict."""
    if name and all(volume.name != name for volume in record.defaulted.spec.utility_volumes):
        raise Conflict(f"utility volume {name} has left {record.key} meanwhile", hint="add it again")


def destination(record: InstanceRecord, name: str, use: Use, *, field: str) -> UtilityVolume:
    """The utility volume ``name``, if it takes what is to be written.

    Raises:
        InvalidRequest: naming ``field``: there is none, it is only read, or it is for something else.
    """
    present = {volume.name: volume for volume in record.defaulted.spec.utility_volumes}
    volume = present.get(name)
    if volume is None:
        known = ", ".join(present) or "it has none"
        raise InvalidRequest(
            [_invalid(field, name, f"{record.key} has no utility volume of that name; there are: {known}")]
        )
    if volume.read_only:
        raise InvalidRequest([_invalid(field, name, f"utility volume {name} is read-only")])
    if volume.type and volume.type != use:
        message = f"utility volume {name} is of type {volume.type}; {_WORDS[use]} need {use}, or none"
        raise InvalidRequest([_invalid(field, name, message)])
    return volume


def sole_for_dumps(record: InstanceRecord) -> UtilityVolume | None:
    """The only utility volume of type MemoryDump; None when there is none, or more than one."""
    found = [volume for volume in record.defaulted.spec.utility_volumes if volume.type == "MemoryDump"]
    return found[0] if len(found) == 1 else None


def folders(record: InstanceRecord) -> tuple[Folder, ...]:
    """The directories that are to be looked at."""
    return tuple(
        _folder(volume, record.allocations.claims[volume.claim_name])
        for volume in record.defaulted.spec.utility_volumes
        if volume.claim_name in record.allocations.claims
    )


def utility_statuses(
    record: InstanceRecord, seen: tuple[FolderState, ...], *, but: frozenset[str] = frozenset()
) -> tuple[VolumeStatus, ...]:
    """``status.volumeStatus`` of utility volumes, except ``but``; Pending until they are ``seen`` well."""
    states = {state.folder: state for state in seen}
    places = record.allocations.claims
    return tuple(
        _status(volume, states.get(_folder(volume, place)), place)
        for volume in record.defaulted.spec.utility_volumes
        if volume.name not in but and (place := places.get(volume.claim_name)) is not None
    )


def _status(volume: UtilityVolume, state: FolderState | None, place: ClaimPlace) -> VolumeStatus:
    reason, message = (state.reason, state.message) if state is not None else ("", "")
    return VolumeStatus(
        name=volume.name,
        target="",
        phase="Pending" if state is None or message else "Ready",
        reason=reason or None,
        message=message or None,
        persistent_volume_claim_info=_claim(volume, place.capacity),
    )


def _folder(volume: UtilityVolume, place: ClaimPlace) -> Folder:
    return Folder(name=volume.name, path=place.path, writes=not volume.read_only)


def _claim(volume: UtilityVolume, capacity: int) -> PersistentVolumeClaimInfo:
    return PersistentVolumeClaimInfo(
        claim_name=volume.claim_name,
        capacity={"storage": Quantity(capacity)} if capacity else {},
        volume_mode="Filesystem",
    )


def _is_disk(place: ClaimPlace) -> bool:
    return place.block or place.path.endswith(IMAGE_SUFFIXES)


def _invalid(field: str, value: str, message: str) -> Violation:
    return Violation(field=field, type="FieldValueInvalid", value=value[:80], message=message)
