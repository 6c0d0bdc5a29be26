# SPDX-License-Identifier: Apache-2.0
"""Which disks a snapshot or backup has, what is refused, and the record and job of one. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from launcher.agent.backup_records import CopiedVolume, CopyRecord
from launcher.agent.records import InstanceRecord
from launcher.domain.backup import BackupJob, CopiedDisk
from launcher.errors import InvalidRequest, Violation
from launcher.plan.devices.model import DiskPlan
from launcher.plan.volumes import GENERATED

SNAPSHOT_DEADLINE_S: Final = 24 * 3600
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


def _not_a_disk(name: str) -> Violation:
    return Violation(
        field="volumes", type="FieldValueNotFound", value=name[:80], message=f"no disk is named {name[:80]}"
    )
