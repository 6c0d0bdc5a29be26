# SPDX-License-Identifier: Apache-2.0
"""Where a volume's bytes will lie on this node. Pure; what brings them there is in ``volume_steps``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from launcher.plan.allocations import ClaimPlace
from launcher.plan.context import PlanContext
from launcher.plan.devices.model import Backing, DiskSource, ImageFormat
from launcher.spec.model import VirtualMachineInstance, Volume

# A claim whose path ends so is an image file; any other path is a directory that holds ``disk.img``.
IMAGE_SUFFIXES = (".img", ".raw", ".iso")

# Kinds of volumes whose files ``launcher.plan.media`` makes out of the manifest and what came beside it.
GENERATED = frozenset(
    {
        "cloudInitConfigDrive",
        "cloudInitNoCloud",
        "configMap",
        "downwardAPI",
        "secret",
        "serviceAccount",
        "sysprep",
    }
)

# Labels by which cloud-init finds its data (its documentation of both data sources), and those that KubeVirt
# gives to the others.
NO_CLOUD_LABEL = "cidata"
CONFIG_DRIVE_LABEL = "config-2"
SYSPREP_LABEL = "unattendCD"
DEFAULT_LABEL = "cfgdata"

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
    """The image of a volume. ``bound`` False: nobody said where its claim lies; the path is a stand-in.
    ``preallocated``: its blocks are to stay taken; ``readonly``: nobody may write to it."""

    kind: str
    source: DiskSource
    format: ImageFormat = "raw"
    backing: Backing | None = None
    bound: bool = True
    preallocated: bool = False
    readonly: bool = False


def volume_kind(volume: Volume) -> str:
    """The JSON name of the volume's source (``emptyDisk``); empty when it has none."""
    for attribute, kind in _KINDS.items():
        if getattr(volume, attribute) is not None:
            return kind
    return ""


def volume_label(volume: Volume) -> str:
    """The label of the ISO image of a generated volume."""
    if volume.cloud_init_no_cloud is not None:
        return NO_CLOUD_LABEL
    if volume.cloud_init_config_drive is not None:
        return CONFIG_DRIVE_LABEL
    if volume.sysprep is not None:
        return SYSPREP_LABEL
    source = volume.config_map or volume.secret or volume.downward_api
    return (source.volume_label if source is not None else None) or DEFAULT_LABEL


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
        source, bound = claim_source(context, volume)
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
        source, bound = claim_source(context, volume)
        place = context.allocations.claims.get(claim_name(volume) or "")
        kept = place is not None and place.preallocated
        return VolumePlace(
            kind=kind, source=source, bound=bound, preallocated=kept, readonly=is_read_only(volume)
        )
    return VolumePlace(kind=kind, source=DiskSource(path=paths.iso(volume.name)))


def is_read_only(volume: Volume) -> bool:
    """Whether the guest is not to write to the volume, by whatever disk or share it has it."""
    if volume.container_path is not None:
        return True
    claim = volume.persistent_volume_claim
    return claim is not None and bool(claim.read_only)


def claim_source(context: PlanContext, volume: Volume) -> tuple[DiskSource, bool]:
    """The image or device of a volume's claim, and whether the caller said where it is."""
    place = context.allocations.claims.get(claim_name(volume) or "")
    if place is None:
        return DiskSource(path=f"{context.paths.disks}/{volume.name}/disk.img"), False
    return image_of(place), True


def image_of(place: ClaimPlace) -> DiskSource:
    """The image or device of a claim."""
    if place.block or place.path.endswith(IMAGE_SUFFIXES):
        return DiskSource(path=place.path, block=place.block)
    return DiskSource(path=f"{place.path.rstrip('/')}/disk.img")
