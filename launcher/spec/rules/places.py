# SPDX-License-Identifier: Apache-2.0
"""Rules across devices: boot orders, PCI addresses and aliases, each of which there is only once."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.errors import Violation
from launcher.spec.model import Interface
from launcher.spec.rules.checks import unique
from launcher.spec.rules.context import DEVICES, Context, Rule
from launcher.spec.rules.finding import duplicate


def boot_orders(ctx: Context) -> Iterator[Violation]:
    """No two disks or interfaces are tried at the same place of the boot order."""
    disks = ((entry.path, entry.written.boot_order) for entry in ctx.disks)
    interfaces = ((path, interface.boot_order) for path, interface in ctx.interfaces)
    yield from unique(
        (f"{path}.bootOrder", order) for path, order in (*disks, *interfaces) if order is not None
    )


def pci_addresses(ctx: Context) -> Iterator[Violation]:
    """No two devices have the same PCI address."""
    disks = (
        (f"{entry.path}.disk.pciAddress", entry.written.disk.pci_address)
        for entry in ctx.disks
        if entry.written.disk is not None and entry.written.disk.pci_address
    )
    interfaces = (
        (f"{path}.pciAddress", interface.pci_address)
        for path, interface in ctx.interfaces
        if interface.pci_address
    )
    yield from unique((field, text.lower()) for field, text in (*disks, *interfaces))


def aliases(ctx: Context) -> Iterator[Violation]:
    """libvirt knows devices by their names, so devices of different kinds must differ in them, too."""
    first: dict[str, tuple[str, str]] = {}
    for kind, field, name in _names(ctx):
        taken = first.setdefault(name, (kind, field))
        # The same name twice in one list is found where the list is checked.
        if name and taken[0] != kind:
            yield duplicate(field, name, taken[1])


def _names(ctx: Context) -> Iterator[tuple[str, str, str]]:
    """Kind, place and alias of all devices. What defaults add comes first: it is the rest that can change."""
    devices = ctx.devices
    for added in ctx.full_devices.interfaces[len(ctx.interfaces) :]:
        yield "interfaces", "the interface that is added", _interface_alias(added)
    places = {volume.name: path for path, volume in ctx.volumes}
    for disk in ctx.full_devices.disks[len(ctx.disks) :]:
        yield "disks", f"{places.get(disk.name, 'spec.volumes')}.name", disk.name
    for entry in ctx.disks:
        yield "disks", f"{entry.path}.name", entry.written.name
    for path, interface in ctx.interfaces:
        yield "interfaces", f"{path}.name", _interface_alias(interface)
    for index, item in enumerate(devices.inputs):
        yield "inputs", f"{DEVICES}.inputs[{index}].name", item.name
    for index, gpu in enumerate(devices.gpus):
        yield "gpus", f"{DEVICES}.gpus[{index}].name", f"gpu-{gpu.name}"
    for index, device in enumerate(devices.host_devices):
        yield "hostDevices", f"{DEVICES}.hostDevices[{index}].name", f"hostdevice-{device.name}"
    if devices.watchdog is not None:
        yield "watchdog", f"{DEVICES}.watchdog.name", devices.watchdog.name
    if devices.sound is not None:
        yield "sound", f"{DEVICES}.sound.name", devices.sound.name


def _interface_alias(interface: Interface) -> str:
    return f"sriov-{interface.name}" if interface.sriov is not None else interface.name


RULES: tuple[Rule, ...] = (boot_orders, pci_addresses, aliases)
