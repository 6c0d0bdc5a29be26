# SPDX-License-Identifier: Apache-2.0
"""Rules of volumes that are image files of the node: containerDisk, hostDisk, emptyDisk, containerPath."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from launcher.errors import Violation
from launcher.spec.model import HostDisk, Quantity
from launcher.spec.rules.checks import absolute_path, dns_subdomain, image, one_of
from launcher.spec.rules.context import Context, Rule
from launcher.spec.rules.finding import invalid, required
from launcher.units import MIB

HOST_DISK_TYPES: Final = ("Disk", "DiskOrCreate")
# Sizes of images are rounded down to this.
SMALLEST_DISK: Final = MIB

_RESERVED: Final = ("/var/run/kubevirt", "/var/run/libvirt", "/run/kubevirt", "/run/libvirt")


def container_disks(ctx: Context) -> Iterator[Violation]:
    """A container disk has an image, and the path in it is absolute."""
    for path, volume in ctx.volumes:
        disk = volume.container_disk
        if disk is None:
            continue
        path += ".containerDisk"
        yield from image(f"{path}.image", disk.image)
        if disk.path:
            yield from absolute_path(f"{path}.path", disk.path, "a disk in the image")
        if disk.image_pull_secret:
            yield from dns_subdomain(f"{path}.imagePullSecret", disk.image_pull_secret)


def host_disks(ctx: Context) -> Iterator[Violation]:
    """A host disk is a file, and has a capacity only when it may be created."""
    for path, volume in ctx.volumes:
        if volume.host_disk is not None:
            yield from _host_disk(f"{path}.hostDisk", volume.host_disk)


def empty_disks(ctx: Context) -> Iterator[Violation]:
    """An empty disk has room for something."""
    for path, volume in ctx.volumes:
        if volume.empty_disk is not None:
            yield from _capacity(f"{path}.emptyDisk.capacity", volume.empty_disk.capacity)


def container_paths(ctx: Context) -> Iterator[Violation]:
    """A path of the node is shared for reading only, and is nobody else's."""
    for path, volume in ctx.volumes:
        source = volume.container_path
        if source is None:
            continue
        path += ".containerPath"
        yield from absolute_path(f"{path}.path", source.path, "a directory")
        if any(source.path == taken or source.path.startswith(f"{taken}/") for taken in _RESERVED):
            yield invalid(f"{path}.path", source.path, f"must not be below {' or '.join(_RESERVED[:2])}")
        if not source.read_only:
            yield required(f"{path}.readOnly", "must be true: a containerPath can only be read")


def _host_disk(path: str, disk: HostDisk) -> Iterator[Violation]:
    if disk.path.endswith("/"):
        yield invalid(f"{path}.path", disk.path, "must be the absolute path of a disk image, not a directory")
    else:
        yield from absolute_path(f"{path}.path", disk.path, "a disk image")
    if not disk.type:
        yield required(f"{path}.type", f"needs one of {', '.join(HOST_DISK_TYPES)}")
    yield from one_of(f"{path}.type", disk.type, HOST_DISK_TYPES)
    if disk.capacity is None:
        return
    if disk.type == "Disk":
        yield invalid(
            f"{path}.capacity", disk.capacity, "goes with type DiskOrCreate only: a Disk exists already"
        )
    else:
        yield from _capacity(f"{path}.capacity", disk.capacity)


def _capacity(field: str, capacity: Quantity) -> Iterator[Violation]:
    if capacity < SMALLEST_DISK:
        yield invalid(field, capacity, "accepted are sizes of 1Mi and more")


RULES: tuple[Rule, ...] = (container_disks, host_disks, empty_disks, container_paths)
