# SPDX-License-Identifier: Apache-2.0
"""Where a dump of memory goes, what its file is called, how it shows in the status. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from launcher.agent.backup_rules import compact
from launcher.agent.port import ClaimBinding
from launcher.agent.records import DomainJob, InstanceRecord, MemoryDump
from launcher.errors import Conflict, InvalidRequest, Violation
from launcher.plan.context import guest_memory
from launcher.plan.volumes import IMAGE_SUFFIXES
from launcher.spec.model import DomainMemoryDumpInfo, VolumeStatus
from launcher.units import MIB

OVERHEAD_BYTES: Final = 100 * MIB
"""What a claim must hold beside the guest's memory: KubeVirt's sizing of claims for dumps."""
SLOWEST_BYTES_S: Final = 20 * MIB
"""A disk that takes less in a second is taken for dead."""
MIN_DEADLINE_S: Final = 60.0
IN_PROGRESS: Final = "MemoryDumpInProgress"


def new_dump(record: InstanceRecord, claim: str, binding: ClaimBinding | None, *, now: str) -> MemoryDump:
    """The dump that begins now: into ``claim`` or, when that is empty, the claim of the memoryDump volume.

    Raises:
        InvalidRequest: no claim is named or bound to a directory here.
    """
    volume = next((v for v in record.defaulted.spec.volumes if v.memory_dump is not None), None)
    wanted = claim or (volume.memory_dump.claim_name if volume is not None and volume.memory_dump else "")
    if not wanted:
        raise _invalid("claim", "", "required: the instance has no memoryDump volume")
    place = record.allocations.claims.get(wanted)
    path, block = (place.path, place.block) if place is not None else ("", False)
    if binding is not None:
        path, block = binding.path, binding.block
    if not path.startswith("/") or ".." in path.split("/"):
        raise _invalid("binding.path", path, f"claim {wanted} must be bound to an absolute path of this node")
    if block or path.endswith(IMAGE_SUFFIXES):
        raise _invalid("claim", wanted, f"claim {wanted} is a disk; a dump needs a directory")
    named = volume.name if volume is not None and _claim(volume.memory_dump) == wanted else wanted
    stamp = compact(now).removesuffix("Z").replace("T", "-")
    return MemoryDump(
        volume=named,
        claim=wanted,
        directory=path.rstrip("/") or "/",
        file=f"{record.name}-{named}-{stamp}.memory.dump",
        started=now,
        phase=IN_PROGRESS,
    )


def dumping(record: InstanceRecord, dump: MemoryDump) -> InstanceRecord:
    """The record with ``dump`` under way.

    Raises:
        Conflict: the domain is busy or migrates.
    """
    if record.outgoing:
        raise Conflict(f"{record.key} migrates", hint="wait for the migration, or cancel it")
    if record.job is not None:
        raise Conflict(f"{record.key} is busy with its {record.job}", hint="wait for it")
    return replace(record, job=DomainJob(kind="memory dump", name=dump.file), memory_dump=dump)


def ended(record: InstanceRecord, dump: MemoryDump, *, why: str, now: str) -> InstanceRecord:
    """The record when ``dump`` has ended: well, unless ``why`` says otherwise."""
    phase = "MemoryDumpFailed" if why else "MemoryDumpCompleted"
    job = None if record.job is not None and record.job.name == dump.file else record.job
    return replace(record, job=job, memory_dump=replace(dump, phase=phase, message=why, ended=now))


def older_dumps(names: Iterable[str], dump: MemoryDump, vmi: str) -> tuple[str, ...]:
    """Which of the files ``names`` are earlier dumps of this instance into this volume."""
    ours = re.compile(rf"{re.escape(vmi)}-{re.escape(dump.volume)}-\d{{8}}-\d{{6}}\.memory\.dump")
    return tuple(sorted(name for name in names if ours.fullmatch(name) and name != dump.file))


def bytes_needed(record: InstanceRecord) -> int:
    """Room that a dump of the guest's memory must find."""
    return guest_memory(record.defaulted) + OVERHEAD_BYTES


def deadline_s(record: InstanceRecord) -> float:
    """How long a dump may take; the guest waits all the while."""
    return MIN_DEADLINE_S + bytes_needed(record) / SLOWEST_BYTES_S


def dump_statuses(record: InstanceRecord) -> tuple[VolumeStatus, ...]:
    """``status.volumeStatus`` of memoryDump volumes and of the last dump."""
    dump = record.memory_dump
    volumes = {v.name: _claim(v.memory_dump) for v in record.defaulted.spec.volumes if v.memory_dump}
    if dump is not None:
        volumes[dump.volume] = dump.claim
    return tuple(_status(name, claim, dump) for name, claim in volumes.items())


def _status(name: str, claim: str, dump: MemoryDump | None) -> VolumeStatus:
    if dump is None or dump.volume != name:
        return VolumeStatus(
            name=name, target="", phase="Ready", memory_dump_volume=DomainMemoryDumpInfo(claim_name=claim)
        )
    return VolumeStatus(
        name=name,
        target="",
        phase=dump.phase,
        message=dump.message or None,
        memory_dump_volume=DomainMemoryDumpInfo(
            claim_name=claim,
            target_file_name=dump.file,
            start_timestamp=dump.started,
            end_timestamp=dump.ended or None,
        ),
    )


def _claim(source: object) -> str:
    return str(getattr(source, "claim_name", ""))


def _invalid(field: str, value: str, message: str) -> InvalidRequest:
    return InvalidRequest(
        [Violation(field=field, type="FieldValueInvalid", value=value[:80], message=message)]
    )
