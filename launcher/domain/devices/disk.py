# SPDX-License-Identifier: Apache-2.0
"""``<disk>``. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.domain.devices.address import alias, boot, pci
from launcher.domain.element import E, Element
from launcher.plan.devices.model import Backing, DiskPlan, DiskSource
from launcher.plan.model import VMPlan


def disks(plan: VMPlan) -> Iterator[Element]:
    """All disks, in the order of the manifest."""
    return map(disk_element, plan.devices.disks)


def disk_element(disk: DiskPlan) -> Element:
    """One disk, also as libvirt takes it at run time."""
    block = disk.source is None or disk.source.block
    return E(
        "disk",
        _driver(disk),
        _source(disk),
        _backing_store(disk.backing),
        E("target", dev=disk.target, bus=disk.bus, tray=disk.tray),
        _block_sizes(disk),
        E("readonly") if disk.readonly else None,
        E("shareable") if disk.shareable else None,
        boot(disk.boot_order),
        E("serial", disk.serial) if disk.serial is not None else None,
        alias(disk.name),
        pci(disk.address) if disk.unit is None else _scsi_unit(disk.unit),
        type="block" if block else "file",
        device=disk.device,
        model=disk.model,
    )


def _driver(disk: DiskPlan) -> Element:
    mapping = (
        E("iothreads", *(E("iothread", id=thread) for thread in disk.iothreads)) if disk.iothreads else None
    )
    return E(
        "driver",
        mapping,
        name="qemu",
        type=disk.format,
        cache=disk.cache,
        error_policy=disk.error_policy,
        io=disk.io,
        discard="unmap" if disk.discard else None,
        iothread=disk.iothread,
        queues=disk.queues,
        iommu="on" if disk.iommu else None,
    )


def _source(disk: DiskPlan) -> Element | None:
    """An empty drive has no source. (The reference's ``name`` attribute is in no libvirt schema.)"""
    if disk.source is None:
        return None
    return _place(disk.source, _reservations(disk))


def _reservations(disk: DiskPlan) -> Element | None:
    if disk.reservation_socket is None:
        return None
    return E(
        "reservations",
        E("source", type="unix", path=disk.reservation_socket, mode="client"),
        managed="no",
        migration="yes" if disk.reservation_migration else None,
    )


def _place(source: DiskSource, below: Element | None = None) -> Element:
    return E("source", below, dev=source.path) if source.block else E("source", below, file=source.path)


def _backing_store(backing: Backing | None) -> Element | None:
    """The chain ends with the base: what its header says is not followed."""
    if backing is None:
        return None
    return E(
        "backingStore",
        E("format", type=backing.format),
        _place(backing.source),
        E("backingStore"),
        type="block" if backing.source.block else "file",
    )


def _block_sizes(disk: DiskPlan) -> Element | None:
    sizes = disk.block_sizes
    if sizes is None:
        return None
    return E(
        "blockio",
        logical_block_size=sizes.logical,
        physical_block_size=sizes.physical,
        discard_granularity=sizes.discard_granularity,
    )


def _scsi_unit(unit: int) -> Element:
    return E("address", type="drive", controller=0, bus=0, unit=unit)
