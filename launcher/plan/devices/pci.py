# SPDX-License-Identifier: Apache-2.0
"""Where devices sit on PCI: root ports with spare ones for hotplug, or the root complex. Pure, in one pass.

Addresses are given here and not left to libvirt, so that the same manifest always has the same ones, and so
that it is known which ports are taken. Devices of conventional PCI are left to libvirt, which puts them
behind a bridge of its own. An address that the user gave is kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, TypeVar

from msgspec.structs import replace

from launcher.errors import HostUnsupported, InvalidSpec, Violation
from launcher.plan.context import PlanContext
from launcher.plan.devices.hostdev import is_function
from launcher.plan.devices.model import ControllerPlan, DevicesPlan, OnPci, PciAddress
from launcher.units import GIB

ON_ROOT_COMPLEX = "kubevirt.io/placePCIDevicesOnRootComplex"
INTERFACE_SLOTS = "kubevirt.io/pci-interface-slot-count"
NO_HOLE64 = "kubevirt.io/disablePCIHole64"

# Ports are numbered as buses; spare ones never go beyond this index.
LAST_PORT = 31
# Ports for interfaces that may come, and in all: the API's promise, larger from 2 GiB of memory on.
_INTERFACE_PORTS = 4
_LARGE_GUEST = 2 * GIB
_CONVENTIONAL_NICS = frozenset({"e1000", "ne2k_pci", "pcnet", "rtl8139"})
# Slots of the root complex that q35 keeps for sound (1b) and for its SATA and LPC functions (1f).
_RESERVED_SLOTS = frozenset({0x1B, 0x1F})


T = TypeVar("T", bound=OnPci)


def place_on_pci(context: PlanContext, devices: DevicesPlan) -> DevicesPlan:
    """Give PCI Express devices their addresses and add the ports these name.

    Raises:
        InvalidSpec: the annotation with the number of interface slots is no number.
        HostUnsupported: the root complex has no slot left.
    """
    if not _has_pcie(context):
        return devices
    if context.annotations.get(ON_ROOT_COMPLEX) == "true":
        placed = _place(devices, _RootComplex(devices), conventional=True)
        return _with_controllers(context, placed, ())
    ports = _RootPorts(devices)
    placed = _place(devices, ports, conventional=False)
    spare = 0 if context.devices.disable_hotplug else _spare_ports(context, devices)
    return _with_controllers(
        context, placed, tuple(ports.controllers(spare + _taken_by_libvirt(context, devices)))
    )


def _has_pcie(context: PlanContext) -> bool:
    machine = (
        context.domain.machine.type if context.domain.machine is not None else None
    ) or context.arch.machine
    return context.arch.pcie and machine.startswith(("q35", "pc-q35", "virt"))


class _Seats(Protocol):
    def take(self, *, nic: bool) -> PciAddress: ...


class _RootPorts:
    """One port for each device, numbered from 1. Buses that the user named are passed over."""

    def __init__(self, devices: DevicesPlan) -> None:
        asked = {address.bus: nic for address, nic in _addresses(devices)}
        self._taken = {bus: nic for bus, nic in asked.items() if 0 < bus <= LAST_PORT}
        self._next = 1

    def take(self, *, nic: bool) -> PciAddress:
        while self._next in self._taken:
            self._next += 1
        self._taken[self._next] = nic
        return PciAddress(bus=self._next, slot=0)

    def controllers(self, free: int) -> Iterator[ControllerPlan]:
        """All ports, ``free`` of them without a device. Only NICs and free ports allow (un)plugging."""
        last, index = max(self._taken, default=0), 0
        while index < last or (free > 0 and index < LAST_PORT):
            index += 1
            free -= index not in self._taken
            hotplug = self._taken.get(index, True)
            yield ControllerPlan(type="pci", index=index, model="pcie-root-port", hotplug=hotplug)


class _RootComplex:
    """Slots of bus 0, from 2 on: 1 belongs to the display adapter."""

    def __init__(self, devices: DevicesPlan) -> None:
        self._taken = {
            address.slot for address, _ in _addresses(devices) if address.bus == 0
        } | _RESERVED_SLOTS
        self._next = 2

    def take(self, *, nic: bool) -> PciAddress:
        while self._next in self._taken:
            self._next += 1
        if self._next > 0x1F:
            raise HostUnsupported(
                "PCI slots", "bus 0 has no slot left", hint=f"remove the annotation {ON_ROOT_COMPLEX}"
            )
        self._taken.add(self._next)
        return PciAddress(bus=0, slot=self._next)


def _place(devices: DevicesPlan, seats: _Seats, *, conventional: bool) -> DevicesPlan:
    """Seat the devices in the order in which a guest counts them: interfaces first."""

    def seat(device: T, *, wanted: bool, nic: bool = False) -> T:
        if not wanted or device.address is not None:
            return device
        return replace(device, address=seats.take(nic=nic))

    def virtio(model: str | None) -> bool:
        return model is not None and model != "none" and (conventional or model != "virtio-transitional")

    interfaces = tuple(
        seat(
            nic, wanted=virtio(nic.model) and (conventional or nic.model not in _CONVENTIONAL_NICS), nic=True
        )
        for nic in devices.interfaces
    )
    hostdevs = tuple(
        seat(hostdev, wanted=hostdev.usb is None, nic=is_function(hostdev)) for hostdev in devices.hostdevs
    )
    controllers = tuple(
        seat(controller, wanted=virtio(controller.model)) for controller in devices.controllers
    )
    disks = tuple(seat(disk, wanted=disk.bus == "virtio" and virtio(disk.model)) for disk in devices.disks)
    inputs = tuple(seat(device, wanted=device.bus == "virtio") for device in devices.inputs)
    watchdog = devices.watchdog and seat(devices.watchdog, wanted=conventional)
    rng = devices.rng and seat(devices.rng, wanted=virtio(devices.rng.model))
    balloon = devices.balloon and seat(devices.balloon, wanted=virtio(devices.balloon.model))
    vsock = devices.vsock and seat(devices.vsock, wanted=True)
    filesystems = tuple(seat(filesystem, wanted=True) for filesystem in devices.filesystems)
    return replace(
        devices,
        interfaces=interfaces,
        hostdevs=hostdevs,
        controllers=controllers,
        disks=disks,
        inputs=inputs,
        watchdog=watchdog,
        rng=rng,
        balloon=balloon,
        vsock=vsock,
        filesystems=filesystems,
    )


def _addresses(devices: DevicesPlan) -> Iterator[tuple[PciAddress, bool]]:
    """Addresses that the user gave, and whether it is a NIC's (so is every host device's: an SR-IOV one)."""
    for nic in devices.interfaces:
        if nic.address is not None:
            yield nic.address, True
    for hostdev in devices.hostdevs:
        if hostdev.address is not None:
            yield hostdev.address, True
    for disk in devices.disks:
        if disk.address is not None:
            yield disk.address, False


def _spare_ports(context: PlanContext, devices: DevicesPlan) -> int:
    """Ports left free: for up to four interfaces; for up to eight devices and no less than three (16 and 6).

    The counting is the API's: a USB controller or balloon of model ``none`` counts as a device.
    """
    nics = len(context.devices.interfaces)
    asked = context.annotations.get(INTERFACE_SLOTS)
    if asked is not None:
        placeholders = max(0, _number(asked) - nics)
    else:
        placeholders = max(0, _INTERFACE_PORTS - nics) if nics else 0
    used = len(devices.interfaces) + sum(1 for hostdev in devices.hostdevs if hostdev.pci is not None)
    used += len(devices.controllers) + sum(1 for disk in devices.disks if disk.bus == "virtio")
    used += sum(1 for device in devices.inputs if device.bus == "virtio")
    used += sum(1 for device in (devices.watchdog, devices.rng, devices.balloon) if device is not None)
    wanted = max(16 - used, 6) if context.memory > _LARGE_GUEST else max(8 - used, 3)
    return max(placeholders, wanted)


def _taken_by_libvirt(context: PlanContext, devices: DevicesPlan) -> int:
    """Ports that libvirt will need for what is not seated here: a bridge to conventional PCI, a display."""
    models = [nic.model for nic in devices.interfaces]
    models += [controller.model for controller in devices.controllers]
    models += [disk.model or "" for disk in devices.disks]
    models += [device.model for device in (devices.rng, devices.balloon) if device is not None]
    bridge = (
        any(model == "virtio-transitional" or model in _CONVENTIONAL_NICS for model in models)
        or devices.watchdog is not None
        or (devices.sound is not None and devices.sound.model == "ac97")
    )
    # q35 has slot 1 of the root complex for the display, virt has not.
    display = devices.video is not None and devices.video.type == "virtio" and context.arch.name != "amd64"
    return int(bridge) + int(display)


def _with_controllers(
    context: PlanContext, devices: DevicesPlan, ports: tuple[ControllerPlan, ...]
) -> DevicesPlan:
    hole = context.annotations.get(NO_HOLE64, "").lower() == "true" and context.arch.name == "amd64"
    if not ports and not hole:
        return devices
    # Ports without an explicit root make libvirt 9.0 run out of slots at hotplug.
    root = ControllerPlan(type="pci", index=0, model="pcie-root", pcihole64_kib=0 if hole else None)
    return replace(devices, controllers=(*devices.controllers, root, *ports))


def _number(text: str) -> int:
    if text.isascii() and text.isdigit():
        return int(text)
    message = "the number of PCI slots for interfaces is a whole number"
    field = f"metadata.annotations[{INTERFACE_SLOTS}]"
    raise InvalidSpec([Violation(field=field, type="FieldValueInvalid", value=text[:40], message=message)])
