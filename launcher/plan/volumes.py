# SPDX-License-Identifier: Apache-2.0
"""Where a volume's bytes will lie on this node, and the steps that bring them there. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

import msgspec

from launcher.errors import Bug
from launcher.plan.allocations import ClaimPlace
from launcher.plan.context import PlanContext
from launcher.plan.devices.model import Backing, DevicesPlan, DiskSource, ImageFormat
from launcher.plan.steps import (
    AnyStep,
    CreateImage,
    CreateTap,
    FetchContainerDisk,
    MakeDirectory,
    RequireFile,
)
from launcher.spec.model import VirtualMachineInstance, Volume
from launcher.units import MIB

# A claim whose path ends so is an image file; any other path is a directory that holds ``disk.img``.
IMAGE_SUFFIXES = (".img", ".raw", ".iso")

# Kinds of volumes that get their place here and whose content no step makes yet: to be refused at run time.
NOT_YET_MADE = frozenset(
    {
        "cloudInitConfigDrive",
        "cloudInitNoCloud",
        "configMap",
        "downwardAPI",
        "downwardMetrics",
        "secret",
        "serviceAccount",
        "sysprep",
    }
)

# Attribute of Volume -> the JSON name of that source.
_KINDS = {
    "cloud_init_config_drive": "cloudInitConfigDrive",
    "cloud_init_no_cloud": "cloudInitNoCloud",
    "config_map": "configMap",
    "container_disk": "containerDisk",
    "container_path": "containerPath",
    "data_volume": "dataVolume",
    "downward_api": "downwardAPI",
    "downward_metrics": "downwardMetrics",
    "empty_disk": "emptyDisk",
    "ephemeral": "ephemeral",
    "host_disk": "hostDisk",
    "memory_dump": "memoryDump",
    "persistent_volume_claim": "persistentVolumeClaim",
    "secret": "secret",
    "service_account": "serviceAccount",
    "sysprep": "sysprep",
}


class VolumePlace(msgspec.Struct, frozen=True, kw_only=True):
    """The image of a volume. ``bound`` False: nobody said where its claim lies; the path is a stand-in."""

    kind: str
    source: DiskSource
    format: ImageFormat = "raw"
    backing: Backing | None = None
    bound: bool = True


def volume_kind(volume: Volume) -> str:
    """The JSON name of the volume's source (``emptyDisk``); empty when it has none."""
    for attribute, kind in _KINDS.items():
        if getattr(volume, attribute) is not None:
            return kind
    return ""


def claim_name(volume: Volume) -> str | None:
    """The claim behind a volume, if it stands on one."""
    if volume.persistent_volume_claim is not None:
        return volume.persistent_volume_claim.claim_name
    if volume.data_volume is not None:
        return volume.data_volume.name
    if volume.ephemeral is not None and volume.ephemeral.persistent_volume_claim is not None:
        return volume.ephemeral.persistent_volume_claim.claim_name
    if volume.memory_dump is not None:
        return volume.memory_dump.claim_name
    return None


def block_claims(vmi: VirtualMachineInstance, names: Iterable[str]) -> dict[str, ClaimPlace]:
    """Stand-in places for claims said to be block devices, for translating without a node.

    ``names`` are claims or the volumes that use them; the device is named after the volume.
    """
    asked = frozenset(names)
    places: dict[str, ClaimPlace] = {}
    for volume in vmi.spec.volumes:
        claim = claim_name(volume)
        if claim is not None and asked & {claim, volume.name}:
            places[claim] = ClaimPlace(path=f"/dev/{volume.name}", block=True)
    return places


def default_pull_policy(image: str) -> Literal["Always", "IfNotPresent"]:
    """Kubernetes' rule: what is tagged ``latest`` or not at all is pulled each time, the rest is kept."""
    if image.startswith(("oci:", "oci-archive:")):
        return "IfNotPresent"
    name, _, digest = image.partition("@")
    tag = name.rpartition("/")[2].partition(":")[2]
    return "Always" if not digest and tag in ("", "latest") else "IfNotPresent"


def volume_place(context: PlanContext, volume: Volume) -> VolumePlace:
    """Where the image of ``volume`` lies, or would lie for a kind that never is a disk."""
    kind, paths = volume_kind(volume), context.paths
    if volume.container_disk is not None:
        # What the image holds is known once it was fetched; most are qcow2.
        base = Backing(source=DiskSource(path=paths.base(volume.name)), format="qcow2")
        return VolumePlace(
            kind=kind, source=DiskSource(path=paths.overlay(volume.name)), format="qcow2", backing=base
        )
    if volume.ephemeral is not None:
        source, bound = _claim_source(context, volume)
        return VolumePlace(
            kind=kind,
            source=DiskSource(path=paths.overlay(volume.name)),
            format="qcow2",
            backing=Backing(source=source, format="raw"),
            bound=bound,
        )
    if volume.empty_disk is not None:
        return VolumePlace(kind=kind, source=DiskSource(path=paths.overlay(volume.name)), format="qcow2")
    if volume.host_disk is not None:
        return VolumePlace(kind=kind, source=DiskSource(path=volume.host_disk.path))
    if claim_name(volume) is not None:
        source, bound = _claim_source(context, volume)
        return VolumePlace(kind=kind, source=source, bound=bound)
    return VolumePlace(kind=kind, source=DiskSource(path=paths.iso(volume.name)))


def plan_steps(context: PlanContext, devices: DevicesPlan) -> tuple[AnyStep, ...]:
    """What must exist before the domain starts: directories, then images, then tap devices."""
    owner = context.allocations.uid
    used = {disk.name for disk in devices.disks}
    images = [
        step
        for volume in context.vmi.spec.volumes
        if volume.name in used
        for step in _volume_steps(context, volume)
    ]
    directories = [
        MakeDirectory(owner=owner, path=context.paths.state),
        MakeDirectory(owner=owner, path=context.paths.disks),
        # QEMU itself makes the sockets of displays and consoles in there.
        MakeDirectory(
            owner=owner, path=context.paths.run, uid=context.facts.qemu_uid, gid=context.facts.qemu_gid
        ),
    ]
    return (*directories, *images, *_taps(context, devices))


def _claim_source(context: PlanContext, volume: Volume) -> tuple[DiskSource, bool]:
    place = context.allocations.claims.get(claim_name(volume) or "")
    if place is None:
        return DiskSource(path=f"{context.paths.disks}/{volume.name}/disk.img"), False
    if place.block or place.path.endswith(IMAGE_SUFFIXES):
        return DiskSource(path=place.path, block=place.block), True
    return DiskSource(path=f"{place.path.rstrip('/')}/disk.img"), True


def _volume_steps(context: PlanContext, volume: Volume) -> Iterator[AnyStep]:
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
    return CreateImage(owner=owner, volume=volume.name, path=disk.path, format="raw", size=size, keep=True)


def _claim(context: PlanContext, volume: Volume) -> Iterator[AnyStep]:
    place = context.allocations.claims.get(claim_name(volume) or "")
    if place is None:
        return
    owner, (source, _) = context.allocations.uid, _claim_source(context, volume)
    directory = source.path != place.path
    if directory and place.capacity >= MIB and volume.ephemeral is None:
        yield CreateImage(
            owner=owner,
            volume=volume.name,
            path=source.path,
            format="raw",
            size=_whole_mib(place.capacity),
            keep=True,
        )
    else:
        yield RequireFile(owner=owner, volume=volume.name, path=source.path, block=source.block)
    if volume.ephemeral is not None:
        yield CreateImage(
            owner=owner,
            volume=volume.name,
            path=context.paths.overlay(volume.name),
            format="qcow2",
            backing_path=source.path,
            backing_format="raw",
        )


def _taps(context: PlanContext, devices: DevicesPlan) -> Iterator[AnyStep]:
    pods = {network.name for network in context.vmi.spec.networks if network.pod is not None}
    for nic in devices.interfaces:
        if nic.tap is not None:
            bridge = context.settings.pod_bridge if nic.name in pods else ""
            yield CreateTap(
                owner=context.allocations.uid,
                network=nic.name,
                name=nic.tap,
                bridge=bridge or None,
                mtu=nic.mtu,
                queues=nic.queues or 1,
            )


def _whole_mib(size: int) -> int:
    return size // MIB * MIB
