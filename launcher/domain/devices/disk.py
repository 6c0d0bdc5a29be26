# SPDX-License-Identifier: Apache-2.0
"""``<disk>``. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from launcher.domain.devices.address import alias, boot, pci
from launcher.domain.element import E, Element
from launcher.plan.devices.model import Backing, DiskPlan, DiskSource
from launcher.plan.model import VMPlan

_NO_MORE = E("backingStore")


def disks(plan: VMPlan) -> Iterator[Element]:
    """All disks, in the order of the manifest."""
    return map(disk_element, plan.devices.disks)


def disk_element(disk: DiskPlan) -> Element:
    """One disk, also as libvirt takes it at run time."""
    block = disk.source is None or (disk.source.block and disk.tracking is None)
    return E(
        "disk",
        _driver(
            disk.format if disk.tracking is None else "qcow2",
            disk.cache,
            disk.error_policy,
            disk.io,
            disk.discard,
            disk.iothread,
            disk.iothreads,
            disk.queues,
            disk.iommu,
        ),
        _source(disk),
        _backing_store(disk.backing),
        _target(disk.target, disk.bus, disk.tray),
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


# The same few in all domains.
@lru_cache(maxsize=1024)
def _driver(
    format_: str | None,
    cache: str | None,
    error_policy: str | None,
    io: str | None,
    discard: bool,
    iothread: int | None,
    iothreads: tuple[int, ...],
    queues: int | None,
    iommu: bool,
) -> Element:
    return E(
        "driver",
        E("iothreads", *(E("iothread", id=thread) for thread in iothreads)) if iothreads else None,
        name="qemu",
        type=format_,
        cache=cache,
        error_policy=error_policy,
        io=io,
        discard="unmap" if discard else None,
        iothread=iothread,
        queues=queues,
        iommu="on" if iommu else None,
    )


@lru_cache(maxsize=1024)
def _target(dev: str, bus: str, tray: str | None) -> Element:
    return E("target", dev=dev, bus=bus, tray=tray)


def _source(disk: DiskPlan) -> Element | None:
    """An empty drive has no source. (The reference's ``name`` attribute is in no libvirt schema.)"""
    if disk.source is None:
        return None
    if disk.tracking is not None:
        return E("source", _data_store(disk.source) if disk.data_store else None, file=disk.tracking)
    return _place(disk.source, _reservations(disk))


def _data_store(source: DiskSource) -> Element:
    """The raw image under a file that only tracks its changes."""
    kind = "block" if source.block else "file"
    return E("dataStore", E("format", type="raw"), _place(source), type=kind)


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
        _NO_MORE,
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
