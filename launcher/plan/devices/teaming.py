# SPDX-License-Identifier: Apache-2.0
"""Pairs virtual functions with interfaces that stand in for them while the guest is without them. Pure.

The pair is what has one MAC address: a guest's driver joins the two by that, and by the feature that QEMU
offers with the interface. The guest's traffic goes by the function while it is there.
"""

from __future__ import annotations

from msgspec.structs import replace

from launcher.plan.context import PlanContext
from launcher.plan.devices.hostdev import is_function
from launcher.plan.devices.model import DevicesPlan


def with_teams(context: PlanContext, devices: DevicesPlan) -> DevicesPlan:
    """``devices`` in which each function names its stand-in, if it has one, and that knows of it."""
    by_mac = {nic.mac: nic.name for nic in devices.interfaces if nic.mac and nic.model.startswith("virtio")}
    asked = {nic.name: nic.mac_address for nic in context.devices.interfaces if nic.mac_address}
    hostdevs = tuple(
        replace(device, standby=by_mac.get(asked.get(device.name, "").lower().replace("-", ":"), ""))
        if is_function(device)
        else device
        for device in devices.hostdevs
    )
    standbys = {device.standby for device in hostdevs if device.standby}
    if not standbys:
        return devices
    interfaces = tuple(
        replace(nic, standby=True) if nic.name in standbys else nic for nic in devices.interfaces
    )
    return replace(devices, interfaces=interfaces, hostdevs=hostdevs)
