# SPDX-License-Identifier: Apache-2.0
"""The claims of this node that volumes are copied to: looked at, and made ready. Decides nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence

from msgspec.structs import replace

from launcher.agent.records import InstanceRecord
from launcher.agent.resources import Resources
from launcher.agent.volume_moves import arranged, field_of
from launcher.domain.retarget import NewSource
from launcher.host.openers import writers
from launcher.migration.peer import MovedDisk
from launcher.plan.model import VMPlan
from launcher.plan.volumes import claim_name
from launcher.storage.destination import Spot, fit, objection
from launcher.storage.identity import identities


def spots(record: InstanceRecord, moved: Sequence[MovedDisk]) -> tuple[Spot, ...]:
    """Where the disks go; ``record`` has the new claims already."""
    disks = {disk.name: disk for disk in record.plan.devices.disks}
    volumes = {volume.name: volume for volume in record.defaulted.spec.volumes}
    found = []
    for disk in moved:
        planned = disks.get(disk.volume)
        if planned is None or planned.source is None:
            continue
        place = record.allocations.claims.get(claim_name(volumes[disk.volume]) or "")
        found.append(
            Spot(
                volume=disk.volume,
                path=planned.source.path,
                block=planned.source.block,
                size=disk.bytes,
                taken=disk.taken,
                capacity=place.capacity if place is not None else 0,
                preallocated=place is not None and place.preallocated,
            )
        )
    return tuple(found)


async def objections(record: InstanceRecord, moved: Sequence[MovedDisk]) -> tuple[str, ...]:
    """What speaks against copying to the new claims of ``record``, each with the path of its field."""
    found = spots(record, moved)
    writing = await asyncio.to_thread(writers, [spot.path for spot in found])
    told = []
    for spot in found:
        why = await asyncio.to_thread(objection, spot)
        if not why and spot.path in writing:
            why = f"{spot.path} is written on this node by {writing[spot.path]}"
        if why:
            told.append(f"{field_of(record.defaulted, spot.volume)}: volume {spot.volume!r}: {why}")
    return tuple(told)


async def make_ready(
    record: InstanceRecord, moved: Sequence[MovedDisk], resources: Resources
) -> tuple[VMPlan, dict[str, NewSource]]:
    """Make all that the plan of ``record`` needs, the destinations of ``moved`` as large as their disks.

    Returns the plan with what was found on the way, and the new sources by volume.

    Raises:
        LauncherError: something could not be made.
    """
    slices = {spot.volume: await fit(spot) for spot in spots(record, moved)}
    steps = arranged(record.plan.steps, {disk.volume: disk.bytes for disk in moved})
    plan = await resources.make(replace(record, plan=replace(record.plan, steps=steps)))
    own = tuple(
        planned if getattr(planned, "volume", None) in slices else made
        for planned, made in zip(record.plan.steps, plan.steps, strict=True)
    )
    plan = replace(plan, steps=own)
    sources = {
        disk.name: NewSource(disk=disk, size=slices[disk.name])
        for disk in plan.devices.disks
        if disk.name in slices
    }
    return plan, sources


def same_place(
    record: InstanceRecord, after: InstanceRecord, disks: Collection[MovedDisk]
) -> tuple[str, ...]:
    """New claims that are where the guest has a disk already, whatever they are called. Blocking: looks at
    files."""
    names = {disk.volume for disk in disks}
    old = {d.name: d.source.path for d in record.plan.devices.disks if d.source is not None}
    new = {
        d.name: d.source.path for d in after.plan.devices.disks if d.source is not None and d.name in names
    }
    leads = identities({*old.values(), *new.values()})
    return tuple(
        f"volume {name!r}: {path} is where "
        + ("the volume is already" if there == name else f"volume {there!r} is")
        for name, path in new.items()
        for there, was in old.items()
        if leads[path] == leads[was]
    )
