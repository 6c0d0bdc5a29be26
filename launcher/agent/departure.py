# SPDX-License-Identifier: Apache-2.0
"""What the source of a migration looks at before it asks anybody: its certificates, and its shared disks."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

from launcher.agent.migratability import disks_to_copy
from launcher.agent.records import InstanceRecord
from launcher.errors import HostUnsupported, StorageError
from launcher.host.certificates import examine
from launcher.host.config import Config
from launcher.migration.options import Options, Workload
from launcher.migration.peer import SharedDisk
from launcher.storage.capacity import virtual_size
from launcher.units import GIB, ceil_div

USERS = frozenset({"hostDisk", "persistentVolumeClaim", "dataVolume"})
"""Volumes whose files are the user's."""
STAT_BLOCK = 512
"""The unit of st_blocks, stat(2)."""
PHASES = 3
"""The completion timeout may be doubled, and a forced end gets time of its own."""


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
    """What the disks that are copied take on this node now. Blocking: looks at files."""
    copied = disks_to_copy(record)
    taken = 0
    for disk in record.plan.devices.disks:
        if disk.source is not None and disk.target in copied:
            with contextlib.suppress(OSError):
                taken += Path(disk.source.path).stat().st_blocks * STAT_BLOCK
    return taken
