# SPDX-License-Identifier: Apache-2.0
"""Devices that stay attached while their guest moves: what they are, and whether the target has the same."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from launcher.agent.records import InstanceRecord
from launcher.host.devices import driver_of, model_of
from launcher.migration.peer import MovingDevice
from launcher.plan.devices.hostdev import is_function
from launcher.plan.devices.model import HostdevPlan, PciAddress
from launcher.plan.facts import version

MOVES_STATE = version(8, 1)
"""QEMU's first release in which the migration of VFIO devices is no experiment."""

PLAIN = "vfio-pci"


def staying_attached(record: InstanceRecord) -> tuple[HostdevPlan, ...]:
    """The host's devices that the guest has all the time."""
    return tuple(device for device in record.plan.devices.hostdevs if not is_function(device))


async def fixed_devices(record: InstanceRecord) -> tuple[str, ...]:
    """What keeps devices of the guest that are said to move from it, in sentences."""

    def look() -> tuple[str, ...]:
        return tuple(_stateless(device, driver_of) for device in staying_attached(record))

    return tuple(filter(None, await asyncio.to_thread(look)))


async def moving_devices(record: InstanceRecord) -> tuple[MovingDevice, ...]:
    """What the source tells of them."""

    def look() -> tuple[MovingDevice, ...]:
        return tuple(
            MovingDevice(name=device.name, model=model_of(address_of(device)))
            for device in staying_attached(record)
        )

    return await asyncio.to_thread(look)


async def device_objections(
    draft: InstanceRecord, came: tuple[MovingDevice, ...], *, qemu_versions: tuple[int, int]
) -> tuple[str, ...]:
    """What speaks against the devices of ``draft`` taking over the state of those that ``came``."""
    return await asyncio.to_thread(
        lambda: tuple(judge_devices(draft, came, qemu_versions, model_of, driver_of))
    )


def judge_devices(
    draft: InstanceRecord,
    came: tuple[MovingDevice, ...],
    qemu_versions: tuple[int, int],
    model: Callable[[str], str],
    driver: Callable[[str], str],
) -> Iterator[str]:
    """What speaks against it, in sentences; ``model`` and ``driver`` tell what an address is, or nothing.

    ``qemu_versions`` are those of source and target, 0: not known.
    """
    models = {device.name: device.model for device in came}
    for device in staying_attached(draft):
        here = address_of(device)
        found = model(here)
        if not device.migratable:
            yield f"the device {device.name!r} stays on its host: its resource is not migratable on this node"
        elif not found:
            yield f"the device {device.name!r} would be {here}, which is not on this node"
        elif (models.get(device.name) or found) != found:
            yield f"the device {device.name!r} is a {models[device.name]}, {here} of this node is a {found}"
        elif any(known and known < MOVES_STATE for known in qemu_versions):
            yield f"the device {device.name!r} moves its state only with QEMU 8.1 or newer on both nodes"
        elif _stateless(device, driver):
            yield _stateless(device, driver)


def _stateless(device: HostdevPlan, driver: Callable[[str], str]) -> str:
    """Why a device cannot move its state, by its driver: the plain one of VFIO moves none."""
    if driver(address_of(device)) != PLAIN:
        return ""
    return (
        f"the device {device.name!r} is {address_of(device)}, whose driver {PLAIN} moves no state; "
        f"accepted is the VFIO driver of its vendor, such as mlx5_vfio_pci"
    )


def address_of(device: HostdevPlan) -> str:
    """As /sys names it; of a USB device BUS:DEVICE."""
    if device.pci is not None:
        return _written(device.pci)
    return device.mdev or ":".join(map(str, device.usb or ()))


def _written(pci: PciAddress) -> str:
    return f"{pci.domain:04x}:{pci.bus:02x}:{pci.slot:02x}.{pci.function:x}"
