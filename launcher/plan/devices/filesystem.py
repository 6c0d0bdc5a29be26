# SPDX-License-Identifier: Apache-2.0
"""``devices.filesystems`` -> FilesystemPlan. Pure; virtiofsd itself is started elsewhere."""

from __future__ import annotations

from launcher.plan.context import PlanContext
from launcher.plan.devices.model import FilesystemPlan
from launcher.plan.volumes import GENERATED, claim_name, volume_kind
from launcher.spec.model import Volume


def plan_filesystems(context: PlanContext) -> tuple[FilesystemPlan, ...]:
    """Plan the shared directories, in the manifest's order."""
    volumes = {volume.name: volume for volume in context.vmi.spec.volumes}
    return tuple(
        FilesystemPlan(
            name=filesystem.name,
            socket=context.paths.virtiofs_socket(index),
            kind=volume_kind(volumes[filesystem.name]) if filesystem.name in volumes else "",
            directory=_directory(context, volumes.get(filesystem.name)),
        )
        for index, filesystem in enumerate(context.devices.filesystems)
    )


def _directory(context: PlanContext, volume: Volume | None) -> str | None:
    """What is shared; None: it is no directory of this node."""
    if volume is None:
        return None
    if volume.container_path is not None:
        return volume.container_path.path
    if volume_kind(volume) in GENERATED:
        return context.paths.share(volume.name)
    place = context.allocations.claims.get(claim_name(volume) or "")
    return place.path if place is not None and not place.block else None
