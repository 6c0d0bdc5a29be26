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
from launcher.agent.utility_volumes import destination, sole_for_dumps
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


def new_dump(
    record: InstanceRecord, claim: str, binding: ClaimBinding | None, *, now: str, volume: str = ""
) -> MemoryDump:
    """The dump that begins now: into the utility volume ``volume``, or into ``claim``.

    When both are empty, into the claim of the memoryDump volume, or the only utility volume for dumps.

    Raises:
        InvalidRequest: no claim is named or bound to a directory here, or the volume is not for dumps.
    """
    if volume and (claim or binding is not None):
        raise _invalid("volume", volume, "name a utility volume or a claim, not both")
    named, wanted = _place(record, claim, volume)
    if not wanted:
        raise _invalid("claim", "", "required: the instance has no volume for memory dumps")
    place = record.allocations.claims.get(wanted)
    path, block = (place.path, place.block) if place is not None else ("", False)
    if binding is not None:
        path, block = binding.path, binding.block
    if not path.startswith("/") or ".." in path.split("/"):
        raise _invalid("binding.path", path, f"claim {wanted} must be bound to an absolute path of this node")
    if block or path.endswith(IMAGE_SUFFIXES):
        raise _invalid("claim", wanted, f"claim {wanted} is a disk; a dump needs a directory")
    stamp = compact(now).removesuffix("Z").replace("T", "-")
    stem = f"{record.name}-{named}-{stamp}"
    # Two dumps may begin in one second, and the earlier stays until the later is whole.
    again = record.memory_dump is not None and record.memory_dump.file == f"{stem}.memory.dump"
    return MemoryDump(
        volume=named,
        claim=wanted,
        directory=path.rstrip("/") or "/",
        file=f"{stem}-2.memory.dump" if again else f"{stem}.memory.dump",
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
    utility = next((v for v in record.defaulted.spec.utility_volumes if v.claim_name == dump.claim), None)
    job = DomainJob(kind="memory dump", name=dump.file, volume=utility.name if utility is not None else "")
    return replace(record, job=job, memory_dump=dump)


def ended(record: InstanceRecord, dump: MemoryDump, *, why: str, now: str) -> InstanceRecord:
    """The record when ``dump`` has ended: well, unless ``why`` says otherwise."""
    phase = "MemoryDumpFailed" if why else "MemoryDumpCompleted"
    job = None if record.job is not None and record.job.name == dump.file else record.job
    return replace(record, job=job, memory_dump=replace(dump, phase=phase, message=why, ended=now))


def older_dumps(names: Iterable[str], dump: MemoryDump, vmi: str) -> tuple[str, ...]:
    """Which of the files ``names`` are earlier dumps of this instance into this volume."""
    ours = re.compile(rf"{re.escape(vmi)}-{re.escape(dump.volume)}-\d{{8}}-\d{{6}}(?:-2)?\.memory\.dump")
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


def _place(record: InstanceRecord, claim: str, volume: str) -> tuple[str, str]:
    """The name of the volume that a dump goes into, and its claim (empty: there is none)."""
    spec = record.defaulted.spec
    if volume:
        return volume, destination(record, volume, "MemoryDump", field="volume").claim_name
    own = next((v for v in spec.volumes if v.memory_dump is not None), None)
    if own is not None and own.memory_dump is not None and claim in ("", own.memory_dump.claim_name):
        if own.memory_dump.read_only:
            raise _invalid("claim", own.memory_dump.claim_name, f"volume {own.name} is read-only")
        return own.name, _claim(own.memory_dump)
    utility = next((v for v in spec.utility_volumes if v.claim_name == claim), None)
    if not claim:
        utility = sole_for_dumps(record)
    if utility is not None:
        return utility.name, destination(record, utility.name, "MemoryDump", field="claim").claim_name
    return claim, claim


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
