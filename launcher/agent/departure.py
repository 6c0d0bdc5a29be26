# SPDX-License-Identifier: Apache-2.0
"""What the source of a migration looks at before it asks anybody, and what it tells the target then."""

from __future__ import annotations

import asyncio
import contextlib
import time
from pathlib import Path

import msgspec

from launcher.agent.material import companions_for_target
from launcher.agent.migratability import disks_to_copy
from launcher.agent.moving_devices import moving_devices
from launcher.agent.records import InstanceRecord
from launcher.agent.volume_moves import departing
from launcher.errors import HostUnsupported, HypervisorUnavailable, LauncherError, StorageError
from launcher.host.certificates import examine
from launcher.host.config import Config
from launcher.hypervisor.port import Hypervisor
from launcher.migration.attempt import AttemptRecord, Material, Phase
from launcher.migration.options import Options, Workload
from launcher.migration.peer import MovedDisk, SharedDisk
from launcher.plan.facts import NodeFacts
from launcher.plan.versions import release
from launcher.spec.codec import enc_hook
from launcher.spec.model import VirtualMachineInstance
from launcher.storage.capacity import virtual_size
from launcher.units import GIB, ceil_div

USERS = frozenset({"hostDisk", "persistentVolumeClaim", "dataVolume"})
"""Volumes whose files are the user's."""
STAT_BLOCK = 512
"""The unit of st_blocks, stat(2)."""
_ASKING = (Phase.PENDING, Phase.PREPARING_TARGET, Phase.TARGET_READY)
PHASES = 3
"""The completion timeout may be doubled, and a forced end gets time of its own."""


def doubt(record: InstanceRecord, facts: NodeFacts) -> str:
    """What is to be feared of a migration that nothing forbids, for the log; empty: nothing.

    QEMU forgets writes of guests that it emulates before "physmem: Fix migration dirty bitmap coherency with
    TCG memory access", of 9.0.
    """
    if record.plan.identity.virt != "qemu" or facts.qemu_at_least(9):
        return ""
    return (
        f"QEMU {release(facts.qemu_version)} forgets writes of a guest that it emulates and migrates; "
        "the guest may crash at the target (mended in 9.0)"
    )


async def material(
    attempt: AttemptRecord,
    record: InstanceRecord,
    shown: VirtualMachineInstance | None,
    facts: NodeFacts,
    hypervisor: Hypervisor,
) -> Material:
    """What the target is told of the instance; ``shown`` is its object, whose status goes along.

    Raises:
        HypervisorUnavailable: there is no connection to libvirt.
    """
    manifest = msgspec.structs.replace(departing(record), status=shown.status if shown is not None else None)
    # Once a job may run the target is not prepared again, and the guest may be there already.
    moved = await moved_disks(record, hypervisor) if attempt.phase in _ASKING else ()
    return Material(
        vmi=msgspec.json.encode(manifest, enc_hook=enc_hook).decode(),
        companions=msgspec.json.encode(companions_for_target(record)).decode(),
        libvirt_version=facts.libvirt_version,
        qemu_version=facts.qemu_version,
        deadline_s=deadline_s(attempt.outgoing.options, attempt.outgoing.workload),
        disks=await asyncio.to_thread(shared_disks, record),
        copied_bytes=await asyncio.to_thread(copied_bytes, record),
        notice=msgspec.json.encode(record.notice).decode(),
        moved=moved,
        devices=await moving_devices(record),
    )


def deadline_s(options: Options, workload: Workload) -> float:
    """How long the migration may take, in seconds; 0: as long as it likes."""
    gib = max(ceil_div(workload.memory_bytes, GIB), 1) + ceil_div(workload.disk_bytes, GIB)
    return float(PHASES * options.completion_timeout_per_gib_s * gib)


def tls_findings(config: Config, lasts_s: float) -> tuple[str, ...]:
    """What speaks against an encrypted migration from here. Blocking: reads files."""
    try:
        found = examine(Path(config.migration.tls_dir))
    except HostUnsupported as error:
        return (str(error),)
    if found.client_until < time.time() + lasts_s:
        return ("the certificate of QEMU on this node ends before the migration may",)
    return ()


def shared_disks(record: InstanceRecord) -> tuple[SharedDisk, ...]:
    """Disks that the target must reach itself. Blocking: reads files; one that cannot be read is left out.

    All others are copied, or made anew there.
    """
    copied = disks_to_copy(record)
    found = []
    for disk in record.plan.devices.disks:
        if disk.source is None or disk.target in copied or disk.kind not in USERS:
            continue
        try:
            size = virtual_size(Path(disk.source.path), qcow2=disk.format == "qcow2")
        except StorageError:
            continue  # The target says what it is missing.
        found.append(SharedDisk(path=disk.source.path, bytes=size))
    return tuple(found)


def copied_bytes(record: InstanceRecord) -> int:
    """What the disks take on this node now that the target makes among its own. Blocking: looks at files."""
    copied = disks_to_copy(record)
    moving = frozenset(move.name for move in record.moving)
    taken = 0
    for disk in record.plan.devices.disks:
        if disk.source is not None and disk.target in copied and disk.name not in moving:
            with contextlib.suppress(OSError):
                taken += Path(disk.source.path).stat().st_blocks * STAT_BLOCK
    return taken


async def moved_disks(record: InstanceRecord, hypervisor: Hypervisor) -> tuple[MovedDisk, ...]:
    """The disks that go to other claims, as large as the guest sees them; 0 bytes: libvirt does not tell.

    Raises:
        HypervisorUnavailable: there is no connection to libvirt.
    """
    moving = frozenset(move.name for move in record.moving)
    found = []
    for disk in record.plan.devices.disks:
        if disk.source is None or disk.name not in moving:
            continue
        try:
            size = await hypervisor.disk_size(record.plan.identity.uuid, disk.target)
        except HypervisorUnavailable:
            raise
        except LauncherError:
            size = 0
        taken = await asyncio.to_thread(_taken, Path(disk.source.path), block=disk.source.block)
        found.append(MovedDisk(volume=disk.name, bytes=size, taken=size if taken is None else taken))
    return tuple(found)


def _taken(path: Path, *, block: bool) -> int | None:
    """The bytes of a file that are not holes; None: not known."""
    if block:
        return None
    try:
        return path.stat().st_blocks * STAT_BLOCK
    except OSError:
        return None
