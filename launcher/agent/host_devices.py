# SPDX-License-Identifier: Apache-2.0
"""Devices of the host that instances ask for by resource: which of the node's they get. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from launcher.agent.records import InstanceRecord
from launcher.plan.allocations import Allocations, DevicePool
from launcher.plan.devices.hostdev import is_function, resource_name
from launcher.plan.devices.pciaddress import is_pci_address
from launcher.spec.model import GPU, HostDevice, VirtualMachineInstance

_MDEV = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_USB = re.compile(r"[0-9]{1,3}:[0-9]{1,3}")


def is_address(text: str) -> bool:
    """Whether it is a PCI address, the UUID of a mediated device or USB ``BUS:DEVICE``, in lower case."""
    written = is_pci_address(text) or _MDEV.fullmatch(text) is not None or is_usb(text)
    return written and text == text.lower()


def is_usb(address: str) -> bool:
    """Whether it is that of a USB device."""
    return _USB.fullmatch(address) is not None


def held_devices(allocations: Allocations) -> frozenset[str]:
    """Addresses that an instance has, passed-through interfaces among them."""
    chosen = (address for addresses in allocations.devices.values() for address in addresses)
    return frozenset((*chosen, *allocations.virtual_functions.values()))


def choose_devices(
    vmi: VirtualMachineInstance, pools: Mapping[str, DevicePool], taken: Iterable[str]
) -> dict[str, tuple[str, ...]]:
    """Free addresses for what ``vmi`` asks for, by resource; fewer than it asks for when no more are free.

    A resource of USB devices is one bundle: all of it is somebody's, or nobody's.
    """
    used = set(taken)
    found: dict[str, tuple[str, ...]] = {}
    names = [resource_name(asked) for _, asked in _asked(vmi)]
    for name in dict.fromkeys(names):
        pool = pools.get(name)
        if pool is None:
            continue
        if any(map(is_usb, pool.addresses)):
            chosen = () if used.intersection(pool.addresses) else pool.addresses
        else:
            free = [address for address in pool.addresses if address not in used]
            chosen = tuple(free[: names.count(name)])
        used.update(chosen)
        if chosen:
            found[name] = chosen
    return found


def staying(record: InstanceRecord) -> tuple[str, ...]:
    """Fields of devices that cannot move with the guest, each with its name and why."""
    asked = {one.name: (field, resource_name(one)) for field, one in _asked(record.defaulted)}
    stays = (one for one in record.plan.devices.hostdevs if not is_function(one) and not one.migratable)
    return tuple(
        f"{asked[one.name][0]}: {one.name!r} stays on its host: this node does not say that "
        f"{asked[one.name][1]} is migratable"
        for one in stays
    )


def _asked(vmi: VirtualMachineInstance) -> Iterator[tuple[str, GPU | HostDevice]]:
    """Fields and what they ask for, in the order of planning."""
    devices = vmi.spec.domain.devices
    for index, device in enumerate(devices.host_devices):
        yield f"spec.domain.devices.hostDevices[{index}]", device
    for index, gpu in enumerate(devices.gpus):
        yield f"spec.domain.devices.gpus[{index}]", gpu
