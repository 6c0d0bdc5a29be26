# SPDX-License-Identifier: Apache-2.0
"""``<hostdev>``: never managed by libvirt, for the node's own services bind the drivers. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.domain.devices.address import alias, boot, host_pci, pci
from launcher.domain.element import E, Element
from launcher.domain.read import ALIAS_PREFIX
from launcher.errors import Bug
from launcher.plan.devices.model import HostdevPlan
from launcher.plan.model import VMPlan


def hostdevs(plan: VMPlan) -> Iterator[Element]:
    """All devices of the host."""
    return map(hostdev_element, plan.devices.hostdevs)


def hostdev_element(device: HostdevPlan) -> Element:
    """One device, also as libvirt takes it at run time."""
    kind, source = _source(device)
    standby = device.standby and ALIAS_PREFIX + device.standby
    teaming = E("teaming", type="transient", persistent=standby) if standby else None
    pci_kind, mediated = kind == "pci", kind == "mdev"
    return E(
        "hostdev",
        source,
        teaming,
        boot(device.boot_order),
        alias(device.alias),
        pci(device.address),
        mode="subsystem",
        type=kind,
        managed="no" if pci_kind else None,
        model="vfio-pci" if mediated else None,
        display="on" if device.display else None,
        ramfb="on" if device.ramfb else None,
    )


def hostdev_source(device: HostdevPlan) -> Element:
    """Which device of the host it is."""
    return _source(device)[1]


def _source(device: HostdevPlan) -> tuple[str, Element]:
    if device.pci is not None:
        return "pci", E("source", host_pci(device.pci))
    if device.mdev is not None:
        return "mdev", E("source", E("address", uuid=device.mdev))
    if device.usb is not None:
        bus, number = device.usb
        return "usb", E("source", E("address", bus=bus, device=number))
    raise Bug(f"host device {device.name} has no address")
