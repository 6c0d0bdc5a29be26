# SPDX-License-Identifier: Apache-2.0
"""``<address>``, ``<alias>`` and ``<boot>``, as every device writes them. Pure."""

from __future__ import annotations

from functools import lru_cache

from launcher.domain.element import E, Element
from launcher.domain.read import ALIAS_PREFIX
from launcher.plan.devices.model import PciAddress


# The same few in all domains.
@lru_cache(maxsize=4096)
def pci(address: PciAddress | None) -> Element | None:
    """Where the guest sees a device on PCI; None leaves that to libvirt."""
    return E("address", type="pci", **_numbers(address)) if address is not None else None


def host_pci(address: PciAddress) -> Element:
    """Which device of the host is meant."""
    return E("address", **_numbers(address))


def alias(name: str) -> Element | None:
    """The alias of a device that has a name; libvirt keeps only those with a user's prefix."""
    return E("alias", name=ALIAS_PREFIX + name) if name else None


def boot(order: int | None) -> Element | None:
    """The position of a device in the firmware's boot order."""
    return E("boot", order=order) if order is not None else None


def iommu(*, on: bool) -> Element | None:
    """The driver of a virtio device that must go through the guest's IOMMU API."""
    return E("driver", iommu="on") if on else None


def _numbers(address: PciAddress) -> dict[str, str]:
    return {
        "domain": f"0x{address.domain:04x}",
        "bus": f"0x{address.bus:02x}",
        "slot": f"0x{address.slot:02x}",
        "function": f"0x{address.function:x}",
    }
