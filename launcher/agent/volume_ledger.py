# SPDX-License-Identifier: Apache-2.0
"""Who has which of the user's images open on this node, and who may write. Pure; drawn up from plans.

Between nodes QEMU's own image locks decide; they are never turned off, so they stand behind this ledger, too.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from launcher.agent.records import FINAL, InstanceRecord
from launcher.errors import Conflict
from launcher.plan.devices.model import DiskPlan
from launcher.plan.model import VMPlan
from launcher.plan.steps import AnyStep, CreateImage, RequireFile
from launcher.plan.volumes import claim_name, image_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A file, device or directory that the volume ``volume`` of the instance ``key`` uses.

    ``file`` is what ``path`` leads to, the same text for the same file or device whatever it is called; empty
    when nobody looked.
    """

    key: str
    volume: str
    path: str
    writes: bool
    shareable: bool = False
    file: str = ""


def opened(plan: VMPlan, key: str) -> tuple[Opened, ...]:
    """What the guest of ``plan`` opens of what is not its own. An overlay's base is only read."""
    return _opened(plan.devices.disks, plan.steps, key)


def opened_by(record: InstanceRecord) -> tuple[Opened, ...]:
    """What the instance of ``record`` has open, or will; nothing when its guest ended.

    What it is asked to give back is open until it has done so.
    """
    if record.phase in FINAL or record.moved_to:
        return ()
    uses = [*opened(record.plan, record.key)]
    for leaving in record.leaving:
        uses += _opened((leaving.disk,), leaving.steps, record.key)
    return (*uses, *_copied_to(record))


def _copied_to(record: InstanceRecord) -> Iterator[Opened]:
    """Claims of this node that volumes are being copied to, under a guest that stays."""
    state = record.migration_state
    if not record.outgoing or state is None or state.target_node != state.source_node:
        return
    for move in record.moving:
        place = record.allocations.claims.get(claim_name(move.to) or "")
        if place is not None:
            path = posixpath.normpath(image_of(place).path)
            yield Opened(key=record.key, volume=move.name, path=path, writes=True)


def identified(uses: Iterable[Opened], files: Mapping[str, str]) -> tuple[Opened, ...]:
    """``uses`` with what their paths lead to."""
    return tuple(replace(use, file=files.get(use.path, "")) for use in uses)


def require_free(wanted: Iterable[Opened], held: Iterable[Opened]) -> None:
    """Check that nobody writes what another one uses, unless both said that they share it.

    Raises:
        Conflict: naming volume, path and the other instance.
    """
    taken: dict[str, list[Opened]] = {}
    for use in held:
        taken.setdefault(use.file or use.path, []).append(use)
    for use in wanted:
        for other in taken.get(use.file or use.path, ()):
            if (use.writes or other.writes) and not (use.shareable and other.shareable):
                raise _conflict(use, other)
        taken.setdefault(use.file or use.path, []).append(use)


def _opened(disks: tuple[DiskPlan, ...], steps: tuple[AnyStep, ...], key: str) -> tuple[Opened, ...]:
    users = {
        posixpath.normpath(step.path)
        for step in steps
        if isinstance(step, RequireFile) or (isinstance(step, CreateImage) and step.keep)
    }
    return tuple(use for use in _uses(disks, key) if use.path in users)


def _uses(disks: tuple[DiskPlan, ...], key: str) -> Iterator[Opened]:
    for disk in disks:
        if disk.source is not None:
            yield Opened(
                key=key,
                volume=disk.name,
                path=posixpath.normpath(disk.source.path),
                writes=not disk.readonly,
                shareable=disk.shareable,
            )
        if disk.backing is not None:
            path = posixpath.normpath(disk.backing.source.path)
            yield Opened(key=key, volume=disk.name, path=path, writes=False)


def _conflict(use: Opened, other: Opened) -> Conflict:
    who = "the same instance" if use.key == other.key else other.key
    what = "is written" if other.writes else "is read"
    name = "" if other.path == use.path else f", as {other.path},"
    return Conflict(
        f"volume {use.volume!r}: {use.path} {what}{name} by volume {other.volume!r} of {who}",
        hint="delete that instance first, or set shareable on both disks",
    )
