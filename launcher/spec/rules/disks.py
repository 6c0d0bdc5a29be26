# SPDX-License-Identifier: Apache-2.0
"""Rules of ``devices.disks``: what a disk is, where it is plugged in, and that its settings go together."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, TypeAlias

from launcher.errors import Violation
from launcher.spec.model import CDRomTarget, Disk, DiskTarget, LunTarget
from launcher.spec.rules.checks import (
    Found,
    at_most,
    dns_label,
    in_range,
    one_of,
    pci_address,
    printable,
    unique,
)
from launcher.spec.rules.context import DEVICES, Context, Rule
from launcher.spec.rules.finding import invalid, not_found, unsupported

DISKS: Final = f"{DEVICES}.disks"
# KubeVirt's limit on disks, volumes, interfaces and networks, each.
MOST: Final = 256
BUSES: Final = ("virtio", "sata", "scsi", "usb")
CACHES: Final = ("none", "writethrough", "writeback")
IO_MODES: Final = ("native", "threads")
ERROR_POLICIES: Final = ("stop", "ignore", "report", "enospace")
TRAYS: Final = ("open", "closed")
# Guests read at most this much of a serial number; KubeVirt accepts as much.
LONGEST_SERIAL: Final = 256
LONGEST_TAG: Final = 253

_SERIAL: Final = re.compile(r"[A-Za-z0-9_.+-]*")
_Target: TypeAlias = DiskTarget | CDRomTarget | LunTarget


def targets(disk: Disk) -> tuple[tuple[str, _Target], ...]:
    """The kinds of device that are set: ``(("disk", DiskTarget(...)),)``; a valid disk has one."""
    found: list[tuple[str, _Target]] = []
    if disk.disk is not None:
        found.append(("disk", disk.disk))
    if disk.lun is not None:
        found.append(("lun", disk.lun))
    if disk.cdrom is not None:
        found.append(("cdrom", disk.cdrom))
    return tuple(found)


def names(ctx: Context) -> Iterator[Violation]:
    """Disks have unique names, those of volumes; only a cdrom may be empty."""
    yield from at_most(DISKS, ctx.disks, MOST)
    yield from unique((f"{entry.path}.name", entry.written.name) for entry in ctx.disks)
    for entry in ctx.disks:
        disk = entry.written
        field = f"{entry.path}.name"
        yield from dns_label(field, disk.name)
        volume = ctx.volume_named.get(disk.name)
        if volume is None:
            if disk.cdrom is None:
                yield not_found(field, disk.name, "there is no volume of this name in spec.volumes")
        elif volume.memory_dump is not None or volume.container_path is not None:
            kind = "memoryDump" if volume.memory_dump is not None else "containerPath"
            yield invalid(field, disk.name, f"the volume of this name is a {kind}, which is no disk")


def kinds(ctx: Context) -> Iterator[Violation]:
    """A disk is one of disk, lun and cdrom, on a bus that can carry it."""
    for entry in ctx.disks:
        given = targets(entry.written)
        if len(given) > 1:
            names = ", ".join(name for name, _ in given)
            message = f"a disk is one of disk, lun and cdrom, not {names}"
            yield invalid(f"{entry.path}.{given[1][0]}", None, message)
        for kind, target in targets(entry.full):
            yield from _bus(ctx, f"{entry.path}.{kind}.bus", kind, target.bus or "")


def _bus(ctx: Context, field: str, kind: str, bus: str) -> Found:
    known = ctx.arch.disk_buses
    if bus not in known:
        return (unsupported(field, bus, known, f" on {ctx.arch.name}" if bus in BUSES else ""),)
    if kind == "cdrom" and bus == "virtio":
        return (unsupported(field, bus, [name for name in known if name != bus], " for a cdrom"),)
    if kind == "lun" and bus not in ("scsi", "virtio"):
        return (unsupported(field, bus, ("scsi", "virtio"), " for a lun"),)
    return ()


def plain_disks(ctx: Context) -> Iterator[Violation]:
    """A disk on SATA can be written to, and only virtio disks have PCI addresses."""
    for entry in ctx.disks:
        path, written, full = entry.path, entry.written, entry.full
        target, effective = written.disk, full.disk
        if target is None or effective is None:
            continue
        yield from pci_address(f"{path}.disk.pciAddress", target.pci_address)
        if target.pci_address and effective.bus != "virtio":
            yield invalid(
                f"{path}.disk.pciAddress", target.pci_address, f"needs bus virtio, not {effective.bus}"
            )
        if target.readonly and effective.bus == "sata":
            message = "a disk on sata cannot be readonly; accepted: another bus, or a cdrom"
            yield invalid(f"{path}.disk.readonly", True, message)
            if target.bus:
                yield invalid(f"{path}.disk.bus", target.bus, message)


def luns(ctx: Context) -> Iterator[Violation]:
    """A lun is a claim or a data volume, and reservations are made over SCSI."""
    for entry in ctx.disks:
        path, written, full = entry.path, entry.written, entry.full
        if written.lun is None:
            continue
        volume = ctx.volume_named.get(written.name)
        if volume is not None and volume.persistent_volume_claim is None and volume.data_volume is None:
            yield invalid(f"{path}.lun", None, "a lun needs a persistentVolumeClaim or a dataVolume")
        if written.lun.reservation and full.lun is not None and full.lun.bus != "scsi":
            yield invalid(f"{path}.lun.reservation", True, f"needs bus scsi, not {full.lun.bus}")


def cdroms(ctx: Context) -> Iterator[Violation]:
    """A tray is open or closed."""
    for entry in ctx.disks:
        if entry.written.cdrom is not None:
            yield from one_of(f"{entry.path}.cdrom.tray", entry.written.cdrom.tray, TRAYS)


def settings(ctx: Context) -> Iterator[Violation]:
    """Cache, I/O mode, error policy, serial, tag and boot order have known values."""
    for entry in ctx.disks:
        path, disk = entry.path, entry.written
        yield from one_of(f"{path}.cache", disk.cache, CACHES)
        yield from one_of(f"{path}.io", disk.io, IO_MODES)
        yield from one_of(f"{path}.errorPolicy", disk.error_policy, ERROR_POLICIES)
        yield from in_range(f"{path}.bootOrder", disk.boot_order, 1)
        yield from printable(f"{path}.tag", disk.tag, LONGEST_TAG)
        if not disk.serial:
            continue
        if len(disk.serial) > LONGEST_SERIAL:
            yield invalid(f"{path}.serial", disk.serial, f"accepted are at most {LONGEST_SERIAL} characters")
        if _SERIAL.fullmatch(disk.serial) is None:
            yield invalid(
                f"{path}.serial", disk.serial, "accepted are letters, digits, '_', '.', '+' and '-'"
            )


def combinations(ctx: Context) -> Iterator[Violation]:
    """What shares, bypasses the cache or has its own thread can do so."""
    for entry in ctx.disks:
        path, disk, full = entry.path, entry.written, entry.full
        buffered = disk.cache in ("writethrough", "writeback")
        if disk.io == "native" and buffered:
            yield invalid(f"{path}.io", disk.io, f"native I/O needs cache none, not {disk.cache}")
        if disk.shareable and disk.cache and disk.cache != "none":
            message = "a shareable disk needs cache none, because other machines do not see the cache"
            yield invalid(f"{path}.cache", disk.cache, message)
            yield invalid(f"{path}.shareable", True, message)
        bus = targets(full)[0][1].bus
        if disk.dedicated_io_thread and bus in ("sata", "usb"):
            yield invalid(
                f"{path}.dedicatedIOThread", True, f"an I/O thread needs bus virtio or scsi, not {bus}"
            )


def block_sizes(ctx: Context) -> Iterator[Violation]:
    """Blocks have a size that is given or that of the volume; it is a power of two that the bus can have."""
    for entry in ctx.disks:
        path, disk, full = entry.path, entry.written, entry.full
        size = disk.block_size
        if size is None:
            continue
        path += ".blockSize"
        if (
            size.match_volume is not None
            and size.match_volume.enabled is not False
            and size.custom is not None
        ):
            yield invalid(f"{path}.matchVolume", None, "custom and matchVolume exclude each other")
        if size.custom is None:
            continue
        custom, most = size.custom, ctx.arch.max_block_size
        logical, physical = custom.logical or 0, custom.physical or 0
        for name, value in (("logical", logical), ("physical", physical)):
            if not 512 <= value <= most or value & (value - 1):
                yield invalid(
                    f"{path}.custom.{name}", value, f"accepted are powers of two from 512 to {most}"
                )
        if logical > physical:
            yield invalid(
                f"{path}.custom.physical", physical, f"must not be less than the logical size, {logical}"
            )
        if logical != 512 and full.disk is not None and full.disk.bus == "sata":
            yield invalid(f"{path}.custom.logical", logical, "a disk on sata has logical blocks of 512 bytes")
        granularity = custom.discard_granularity or 0
        if granularity < 0 or (logical > 0 and granularity % logical):
            yield invalid(
                f"{path}.custom.discardGranularity",
                granularity,
                f"must be a multiple of the logical size, {logical}",
            )


RULES: tuple[Rule, ...] = (
    names,
    kinds,
    plain_disks,
    luns,
    cdroms,
    settings,
    combinations,
    block_sizes,
)
