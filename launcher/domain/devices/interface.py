# SPDX-License-Identifier: Apache-2.0
"""``<interface>``. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.domain.devices.address import alias, boot, pci
from launcher.domain.element import E, Element
from launcher.plan.devices.model import InterfacePlan, Passt, PortForward, VhostUser
from launcher.plan.model import VMPlan


def interfaces(plan: VMPlan) -> Iterator[Element]:
    """All interfaces that are not devices of the host."""
    return map(interface_element, plan.devices.interfaces)


def interface_element(nic: InterfacePlan) -> Element:
    """One interface, also as libvirt takes it at run time."""
    passt = nic.passt
    return E(
        "interface",
        E("mac", address=nic.mac) if nic.mac is not None else None,
        E("source", dev=passt.device) if passt is not None and passt.device is not None else None,
        _socket(nic.vhost_user) if nic.vhost_user is not None else None,
        *(_forwards(passt) if passt is not None else ()),
        # The tap is ours, with its queues and its bridge: libvirt only opens it.
        E("target", dev=nic.tap, managed="no") if nic.tap is not None else None,
        E("model", type=nic.model),
        E("teaming", type="persistent") if nic.standby else None,
        E("backend", type="passt", logFile=passt.log_file) if passt is not None else None,
        _driver(nic),
        E("link", state="down") if nic.link_down else None,
        E("mtu", size=nic.mtu) if nic.mtu is not None else None,
        boot(nic.boot_order),
        None if nic.rom else E("rom", enabled="no"),
        alias(nic.name),
        E("acpi", index=nic.acpi_index) if nic.acpi_index is not None else None,
        pci(nic.address),
        type=_type(nic),
    )


def interface_name(name: str, mac: str) -> Element:
    """As much of an interface on a tap as libvirt needs to find it."""
    return E("interface", E("mac", address=mac), alias(name), type="ethernet")


def _socket(switch: VhostUser) -> Element:
    # The switch listens, QEMU connects.
    return E("source", type="unix", path=switch.socket, mode="client")


def _type(nic: InterfacePlan) -> str:
    if nic.vhost_user is not None:
        return "vhostuser"
    if nic.passt is None:
        return "ethernet"
    return "vhostuser" if nic.passt.vhostuser else "user"


def _driver(nic: InterfacePlan) -> Element | None:
    if nic.vhost_user is not None and nic.queues is not None:
        return E("driver", queues=nic.queues)
    if not (nic.vhost or nic.queues is not None or nic.iommu):
        return None
    backend = "vhost" if nic.vhost else "qemu"
    return E("driver", name=backend, queues=nic.queues, iommu="on" if nic.iommu else None)


def _forwards(passt: Passt) -> Iterator[Element]:
    return map(_forward, passt.forwards)


def _forward(forward: PortForward) -> Element:
    ranges = (
        E("range", start=ports.start, end=ports.end, exclude="yes" if ports.exclude else None)
        for ports in forward.ranges
    )
    return E("portForward", *ranges, proto=forward.proto)
