# SPDX-License-Identifier: Apache-2.0
"""The steps that bring volumes, shares and interfaces into being, in the order of making. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from launcher.errors import Bug
from launcher.plan.context import PlanContext
from launcher.plan.devices.model import DevicesPlan, DiskPlan
from launcher.plan.networks import network_steps
from launcher.plan.steps import (
    AnyStep,
    CreateImage,
    FetchContainerDisk,
    MakeDirectory,
    MakeFiles,
    MakeIso,
    MakeMetricsDisk,
    RequireFile,
    StartVirtiofsd,
    TrackChanges,
)
from launcher.plan.volumes import (
    GENERATED,
    claim_name,
    claim_source,
    default_pull_policy,
    is_read_only,
    volume_kind,
    volume_label,
)
from launcher.spec.model import Volume
from launcher.units import MIB


def plan_steps(context: PlanContext, devices: DevicesPlan) -> tuple[AnyStep, ...]:
    """What must exist before the domain starts: directories, images, shares, networks."""
    owner = context.allocations.uid
    used = {disk.name for disk in devices.disks}
    images = [
        step
        for volume in context.vmi.spec.volumes
        if volume.name in used
        for step in volume_steps(context, volume)
    ]
    directories = [
        MakeDirectory(owner=owner, path=context.paths.state),
        MakeDirectory(owner=owner, path=context.paths.disks),
        # QEMU itself makes the sockets of displays and consoles in there.
        MakeDirectory(
            owner=owner, path=context.paths.run, uid=context.facts.qemu_uid, gid=context.facts.qemu_gid
        ),
    ]
    return (
        *directories,
        *images,
        *tracking_steps(context, devices.disks),
        *_shares(context, devices),
        *network_steps(context, devices),
    )


def tracking_steps(context: PlanContext, disks: Iterable[DiskPlan]) -> Iterator[TrackChanges]:
    """What remembers changed blocks of raw images; their images are made before."""
    for disk in disks:
        if disk.tracking is not None and disk.source is not None:
            yield TrackChanges(
                owner=context.allocations.uid,
                volume=disk.name,
                path=disk.tracking,
                data_path=disk.source.path,
                # libvirt hands over files that it knows of; QEMU runs as root on some nodes.
                uid=None if disk.data_store else context.facts.qemu_uid or None,
            )


def volume_steps(context: PlanContext, volume: Volume) -> Iterator[AnyStep]:
    """What one volume needs to be a disk, in the order of making."""
    if volume.container_disk is not None:
        yield from _container_disk(context, volume)
    elif volume.empty_disk is not None:
        yield CreateImage(
            owner=context.allocations.uid,
            volume=volume.name,
            path=context.paths.overlay(volume.name),
            format="qcow2",
            size=_whole_mib(int(volume.empty_disk.capacity.value)),
        )
    elif volume.host_disk is not None:
        yield _host_disk(context, volume)
    elif claim_name(volume) is not None and volume.memory_dump is None:
        yield from _claim(context, volume)
    elif volume_kind(volume) in GENERATED:
        yield MakeIso(
            owner=context.allocations.uid,
            volume=volume.name,
            path=context.paths.iso(volume.name),
            label=volume_label(volume),
            uid=context.facts.qemu_uid,
            gid=context.facts.qemu_gid,
        )
    elif volume.downward_metrics is not None:
        yield MakeMetricsDisk(
            owner=context.allocations.uid, volume=volume.name, path=context.paths.iso(volume.name)
        )


def _container_disk(context: PlanContext, volume: Volume) -> Iterator[AnyStep]:
    disk = volume.container_disk
    if disk is None:
        raise Bug(f"volume {volume.name} is no containerDisk")
    owner, base = context.allocations.uid, context.paths.base(volume.name)
    yield FetchContainerDisk(
        owner=owner,
        volume=volume.name,
        image=disk.image,
        path=base,
        disk=disk.path,
        pull_policy=disk.image_pull_policy or default_pull_policy(disk.image),
        pull_secret=disk.image_pull_secret or None,
        digest=context.allocations.digests.get(disk.image),
    )
    # No format of the base: storage looks at what it fetched.
    yield CreateImage(
        owner=owner,
        volume=volume.name,
        path=context.paths.overlay(volume.name),
        format="qcow2",
        backing_path=base,
    )


def _host_disk(context: PlanContext, volume: Volume) -> AnyStep:
    disk, owner = volume.host_disk, context.allocations.uid
    if disk is None:
        raise Bug(f"volume {volume.name} is no hostDisk")
    if disk.type != "DiskOrCreate":
        return RequireFile(owner=owner, volume=volume.name, path=disk.path)
    size = int(disk.capacity.value) if disk.capacity is not None else None
    return CreateImage(
        owner=owner, volume=volume.name, path=disk.path, format="raw", size=size, keep=True, fit=True
    )


def _claim(context: PlanContext, volume: Volume) -> Iterator[AnyStep]:
    place = context.allocations.claims.get(claim_name(volume) or "")
    if place is None:
        return
    owner, (source, _) = context.allocations.uid, claim_source(context, volume)
    image = not source.block and not source.path.endswith(".iso")
    if image and place.capacity >= MIB and volume.ephemeral is None and not is_read_only(volume):
        yield CreateImage(
            owner=owner,
            volume=volume.name,
            path=source.path,
            format="raw",
            size=_whole_mib(place.capacity),
            keep=True,
            grow=True,
            fit=True,
            preallocate=place.preallocated,
        )
    else:
        size = place.capacity if source.block else 0
        yield RequireFile(
            owner=owner,
            volume=volume.name,
            path=source.path,
            block=source.block,
            min_size=size,
            link=source.path == place.path,
        )
    if volume.ephemeral is not None:
        yield CreateImage(
            owner=owner,
            volume=volume.name,
            path=context.paths.overlay(volume.name),
            format="qcow2",
            backing_path=source.path,
            backing_format="raw",
        )


def _shares(context: PlanContext, devices: DevicesPlan) -> Iterator[AnyStep]:
    """A directory for what is generated, then the daemon; nothing for what has no place."""
    owner, volumes = context.allocations.uid, {volume.name: volume for volume in context.vmi.spec.volumes}
    for index, filesystem in enumerate(devices.filesystems):
        volume = volumes.get(filesystem.name)
        if volume is None or filesystem.directory is None:
            continue
        if filesystem.kind in GENERATED:
            yield MakeFiles(owner=owner, volume=volume.name, path=filesystem.directory)
        yield StartVirtiofsd(
            owner=owner,
            volume=volume.name,
            program=context.facts.programs.virtiofsd or "virtiofsd",
            directory=filesystem.directory,
            socket=filesystem.socket,
            log=context.paths.virtiofsd_log(index),
            readonly=is_read_only(volume),
            uid=context.facts.qemu_uid,
            gid=context.facts.qemu_gid,
        )


def _whole_mib(size: int) -> int:
    return size // MIB * MIB
