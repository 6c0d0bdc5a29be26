# SPDX-License-Identifier: Apache-2.0
"""Which disks a snapshot or backup has, what is refused, and the record and job of one. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from ipaddress import ip_address
from typing import Final

from msgspec.structs import replace

from launcher.agent.backup_records import ENDED, CheckpointRecord, CopiedVolume, CopyRecord
from launcher.agent.port import BackupRequest
from launcher.agent.records import InstanceRecord
from launcher.agent.utility_volumes import destination
from launcher.domain.backup import BackupJob, BackupServer, CopiedDisk
from launcher.errors import Conflict, InvalidRequest, Violation, WrongPhase
from launcher.plan.devices.model import DiskPlan
from launcher.plan.paths import InstancePaths
from launcher.plan.volumes import GENERATED
from launcher.spec.model import (
    ChangedBlockTrackingStatus,
    VirtualMachineInstanceBackupStatus,
    VirtualMachineInstanceBackupVolumeInfo,
)

SNAPSHOT_DEADLINE_S: Final = 24 * 3600
BACKUP_DEADLINE_S: Final = 24 * 3600
MOST_CHECKPOINTS: Final = 16
"""Of one instance; each costs QEMU memory, and the oldest goes when there are more."""
LONGEST_NAME: Final = 63
_NAME: Final = re.compile(r"[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?")


def copy_name(name: str, vmi: str, created: str) -> str:
    """``name`` or, when it is empty, one out of the instance's name and the time.

    Raises:
        InvalidRequest: it cannot be the name of a file and an object.
    """
    found = name or f"{vmi[: LONGEST_NAME - 17]}-{compact(created).lower()}"
    if len(found) > LONGEST_NAME or not _NAME.fullmatch(found) or ".." in found:
        message = f"accepted are 1 to {LONGEST_NAME} lower-case letters, digits, dashes and dots inside"
        raise InvalidRequest(
            [Violation(field="name", type="FieldValueInvalid", value=found[:80], message=message)]
        )
    return found


def compact(moment: str) -> str:
    """``2026-03-01T12:00:00Z`` as ``20260301T120000Z``."""
    return moment.replace("-", "").replace(":", "")


def snapshot_disks(record: InstanceRecord, volumes: Iterable[str]) -> tuple[DiskPlan, ...]:
    """The disks of a snapshot: those named, or all that the guest writes and the manifest does not make.

    Raises:
        InvalidRequest: a volume cannot be copied, is no disk, or there is none.
    """
    names = tuple(dict.fromkeys(volumes))
    disks = {disk.name: disk for disk in record.plan.devices.disks}
    if names:
        findings = [_not_a_disk(name) for name in names if name not in disks]
        chosen = [disks[name] for name in names if name in disks]
        findings += [finding for disk in chosen if (finding := _refusal(disk)) is not None]
        findings += [_unwritten(disk) for disk in chosen if not _written(disk)]
    else:
        chosen = [disk for disk in disks.values() if _written(disk)]
        findings = [finding for disk in chosen if (finding := _refusal(disk)) is not None]
        if not chosen:
            message = "the guest writes to no disk of its own"
            findings = [Violation(field="volumes", type="FieldValueInvalid", message=message)]
    if findings:
        raise InvalidRequest(findings, hint="name the volumes that are to be copied")
    return tuple(chosen)


def snapshot_record(
    record: InstanceRecord, disks: tuple[DiskPlan, ...], *, name: str, created: str, root: str
) -> CopyRecord:
    """The snapshot ``name`` of ``disks``; its files lie under ``root``."""
    directory = f"{root}/{record.uid}/{name}"
    files = {disk.target: f"{directory}/{disk.name}.qcow2" for disk in disks}
    return CopyRecord(
        uid=record.uid,
        uuid=record.plan.identity.uuid,
        namespace=record.namespace,
        vmi=record.name,
        name=name,
        kind="snapshot",
        created=created,
        job=BackupJob(
            disks=tuple(CopiedDisk(target=target, file=file) for target, file in files.items()),
            others=others(record, disks),
        ),
        volumes=tuple(
            CopiedVolume(volume=disk.name, target=disk.target, file=files[disk.target]) for disk in disks
        ),
        directory=directory,
        own=True,
        deadline_s=SNAPSHOT_DEADLINE_S,
    )


def tracked_disks(record: InstanceRecord, volumes: Iterable[str]) -> tuple[DiskPlan, ...]:
    """The disks of a backup: those named, or all whose changed blocks are tracked.

    Raises:
        InvalidRequest: a volume is not tracked. WrongPhase: none is.
    """
    names = tuple(dict.fromkeys(volumes))
    tracked = {disk.name: disk for disk in record.plan.devices.disks if disk.tracked}
    if not tracked:
        raise WrongPhase(
            f"{record.key} has no disk whose changed blocks are tracked",
            hint="set changedBlockTracking on its disks, or make a snapshot",
        )
    missing = [name for name in names if name not in tracked]
    if missing:
        raise InvalidRequest([_untracked(name) for name in missing])
    return tuple(tracked[name] for name in names or tracked)


def directed(record: InstanceRecord, request: BackupRequest) -> BackupRequest:
    """``request`` with the directory of the utility volume that it names, if it does.

    Raises:
        InvalidRequest: there is none of that name or for backups, or it names a directory, too.
    """
    name = request.destination
    if not name:
        return request
    if request.directory or request.mode != "push":
        raise _bad("destination", name, "only a pushed backup has a destination: a directory or a volume")
    claim = destination(record, name, "Backup", field="destination").claim_name
    return replace(request, directory=record.allocations.claims[claim].path)


def backup_record(
    record: InstanceRecord,
    disks: tuple[DiskPlan, ...],
    request: BackupRequest,
    *,
    name: str,
    created: str,
    paths: InstancePaths,
) -> CopyRecord:
    """The backup ``name`` of ``disks``, as ``request`` wants it.

    Raises:
        InvalidRequest: mode, directory, address or deadline cannot be used.
    """
    _require_sound(request)
    stamp, pull = compact(created), request.mode == "pull"
    folder = f"{request.directory.rstrip('/')}/{record.name}/{name}-{stamp}" if not pull else ""
    copied = tuple(
        CopiedDisk(
            target=disk.target,
            file=paths.scratch(disk.name, name) if pull else f"{folder}/{name}-{disk.name}.qcow2",
            export=disk.name if pull else "",
            bitmap=request.incremental if pull else "",
        )
        for disk in disks
    )
    return CopyRecord(
        uid=record.uid,
        uuid=record.plan.identity.uuid,
        namespace=record.namespace,
        vmi=record.name,
        name=name,
        kind="backup",
        created=created,
        job=BackupJob(
            mode="pull" if pull else "push",
            disks=copied,
            others=others(record, disks),
            incremental=request.incremental,
            server=_server(request, paths) if pull else None,
        ),
        volumes=tuple(
            CopiedVolume(
                volume=disk.name,
                target=disk.target,
                file="" if pull else copy.file,
                export=copy.export,
                bitmap=copy.bitmap,
            )
            for disk, copy in zip(disks, copied, strict=True)
        ),
        directory=folder,
        destination=request.destination,
        own=not pull,
        deadline_s=request.deadline_s or BACKUP_DEADLINE_S,
        checkpoint=f"{name}-{stamp}",
    )


def require_covers(checkpoint: CheckpointRecord, copy: CopyRecord) -> None:
    """Check that ``copy`` can go on from ``checkpoint``.

    Raises:
        Conflict: it is broken. InvalidRequest: it does not have all volumes.
    """
    if checkpoint.invalid:
        raise Conflict(
            f"checkpoint {checkpoint.name} cannot be used: {checkpoint.invalid}", hint="make a full backup"
        )
    missing = [v.volume for v in copy.volumes if v.volume not in checkpoint.volumes]
    if missing:
        message = f"checkpoint {checkpoint.name} does not have volume {missing[0]}"
        raise InvalidRequest(
            [Violation(field="incremental", type="FieldValueInvalid", message=message)],
            hint="make a full backup",
        )


def tracking_status(record: InstanceRecord) -> ChangedBlockTrackingStatus | None:
    """``status.changedBlockTracking``: None where nothing is asked for."""
    if not any(disk.tracked for disk in record.plan.devices.disks):
        return None
    state = "Enabled" if record.phase == "Running" else "Initializing"
    return ChangedBlockTrackingStatus(state=state, backup_status=record.backup)


def backup_status(copy: CopyRecord) -> VirtualMachineInstanceBackupStatus:
    """``status.changedBlockTracking.backupStatus`` of the last backup."""
    ended, failed = copy.phase in ENDED, copy.phase == "Failed"
    quiesced = {"GuestAgent": "Succeeded"} if "QuiesceFailed" not in copy.indications else {}
    return VirtualMachineInstanceBackupStatus(
        backup_name=copy.name,
        backup_msg=copy.message or None,
        checkpoint_name=copy.checkpoint if ended and not failed else None,
        completed=ended or None,
        failed=failed or None,
        start_timestamp=copy.created,
        end_timestamp=copy.ended or None,
        quiesce_status=next((quiesced[i] for i in copy.indications if i in quiesced), "Failed"),
        volumes=tuple(VirtualMachineInstanceBackupVolumeInfo(volume_name=v.volume) for v in copy.volumes),
    )


def _require_sound(request: BackupRequest) -> None:
    if request.mode not in ("push", "pull"):
        raise _bad("mode", request.mode, "accepted are push and pull")
    if request.deadline_s < 0:
        raise _bad("deadline_seconds", str(request.deadline_s), "must not be negative")
    parts = request.directory.split("/")
    if request.mode == "push" and (parts[0] or len(parts) < 2 or ".." in parts):
        raise _bad("directory", request.directory, "a pushed backup needs an absolute path")
    if request.mode == "pull" and request.directory:
        raise _bad("directory", request.directory, "a pulled backup goes where the one who pulls puts it")
    if request.mode == "push" and request.listen:
        raise _bad("listen", request.listen, "only a backup that is pulled is served")


def _server(request: BackupRequest, paths: InstancePaths) -> BackupServer:
    if not request.listen:
        return BackupServer(socket=paths.backup_socket)
    address, _, port = request.listen.rpartition(":")
    try:
        at, number = ip_address(address.strip("[]")), int(port)
    except ValueError:
        raise _bad("listen", request.listen, "accepted is ADDRESS:PORT") from None
    if not 0 < number < 65536:
        raise _bad("listen", request.listen, "accepted are ports 1 to 65535")
    return BackupServer(address=str(at), port=number)


def others(record: InstanceRecord, disks: tuple[DiskPlan, ...]) -> tuple[str, ...]:
    """Targets of the disks that are not copied."""
    chosen = {disk.target for disk in disks}
    return tuple(disk.target for disk in record.plan.devices.disks if disk.target not in chosen)


def images(disks: Iterable[DiskPlan]) -> Iterator[str]:
    """All files and devices whose content a full copy of ``disks`` has."""
    for disk in disks:
        if disk.source is not None:
            yield disk.source.path
        if disk.backing is not None:
            yield disk.backing.source.path


def _written(disk: DiskPlan) -> bool:
    """Whether it is a disk that the guest writes to, and whose content is nowhere else."""
    generated = disk.kind in GENERATED or disk.kind == "downwardMetrics"
    return disk.device != "cdrom" and disk.source is not None and not disk.readonly and not generated


def _refusal(disk: DiskPlan) -> Violation | None:
    if disk.device == "lun":
        return _invalid(disk, "is a LUN: the guest may write past QEMU, so that no copy is of one moment")
    if disk.shareable:
        return _invalid(disk, "is shareable: others may write to it, so that no copy is of one moment")
    return None


def _unwritten(disk: DiskPlan) -> Violation:
    return _invalid(disk, "is not written by the guest: its content is where it came from")


def _invalid(disk: DiskPlan, what: str) -> Violation:
    return Violation(
        field="volumes", type="FieldValueNotSupported", value=disk.name, message=f"volume {disk.name} {what}"
    )


def _untracked(name: str) -> Violation:
    message = f"changed blocks of volume {name[:80]} are not tracked"
    return Violation(field="volumes", type="FieldValueInvalid", value=name[:80], message=message)


def _bad(field: str, value: str, message: str) -> InvalidRequest:
    return InvalidRequest(
        [Violation(field=field, type="FieldValueInvalid", value=value[:80], message=message)]
    )


def _not_a_disk(name: str) -> Violation:
    return Violation(
        field="volumes", type="FieldValueNotFound", value=name[:80], message=f"no disk is named {name[:80]}"
    )
