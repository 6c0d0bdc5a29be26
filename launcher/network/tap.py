# SPDX-License-Identifier: Apache-2.0
"""Tap devices in the network namespace that libvirtd and the agent share. Blocking; call it in a thread."""

from __future__ import annotations

import socket

from pyroute2 import IPRoute

from launcher.errors import HostUnsupported, NetworkError
from launcher.network import link
from launcher.network.namespace import set_sysctl
from launcher.plan.steps import CreateTap

KIND = "tun"
_PVID_UNTAGGED = 0x2 | 0x4
"""Linux, include/uapi/linux/if_bridge.h: BRIDGE_VLAN_INFO_PVID and BRIDGE_VLAN_INFO_UNTAGGED."""
_HIGH = "fe:ff:"
"""The highest of all addresses for one station; the first byte is that of libvirt's taps, too."""


def create_tap(step: CreateTap) -> None:
    """Make the tap, attach it to its bridge and set it up; what exists already is brought to that state.

    Raises:
        NetworkError: a foreign device has the name, or the bridge is missing.
        HostUnsupported: the agent may not, or the kernel cannot.
    """
    with link.netlink(step.network, f"tap {step.name} cannot be made (is /dev/net/tun there?)") as ip:
        index = link.index_of(ip, step.name)
        if index is None:
            flags = {"no_pi": 1, "one_queue": 0, "vnet_hdr": 1, "multi_queue": int(step.queues > 1)}
            ip.link("add", ifname=step.name, kind="tuntap", mode="tap", ifr=flags)
            index = link.index_of(ip, step.name)
            if index is None:
                raise NetworkError(step.network, f"tap {step.name} vanished right after it was made")
        else:
            link.require_ours(ip, index, network=step.network, name=step.name, owner=step.owner, kind=KIND)
        ip.link("set", index=index, ifalias=f"{link.ALIAS_PREFIX}{step.owner}")
        stay_silent(step.name)
        bridge = _bridge(ip, step) if step.bridge is not None else None
        mtu = step.mtu
        if mtu is None and bridge is not None:
            # A port of a smaller MTU would lower the bridge's.
            mtu = ip.get_links(bridge)[0].get_attr("IFLA_MTU")
        if mtu is not None:
            ip.link("set", index=index, mtu=mtu)
        if bridge is not None:
            _never_the_lowest(ip, index)
            ip.link("set", index=index, master=bridge)
            if step.vlan is not None:
                _join_vlan(ip, step, index, bridge)
        ip.link("set", index=index, state="up")


def delete_tap(step: CreateTap) -> None:
    """Remove the tap if it is there and ours."""
    link.delete(step.network, step.name, step.owner, KIND)


def _never_the_lowest(ip: IPRoute, index: int) -> None:
    """Give the tap an address that the bridge does not take for its own.

    A bridge whose address nobody set has the lowest of its ports'. If that were a tap's, all who talk to the
    node would lose it when the guest goes, until they ask for its address again (up to 45 s).
    """
    address = str(ip.get_links(index)[0].get_attr("IFLA_ADDRESS"))
    if not address.startswith(_HIGH):
        ip.link("set", index=index, address=_HIGH + address[len(_HIGH) :])


def stay_silent(name: str) -> None:
    """The node itself says nothing to the guest: no neighbour discovery, no listener reports."""
    try:
        set_sysctl(f"ipv6/conf/{name}/disable_ipv6", "1")
    except HostUnsupported:
        return  # a node without IPv6, or without the right to say so, works all the same


def _bridge(ip: IPRoute, step: CreateTap) -> int:
    index = link.index_of(ip, step.bridge or "")
    if index is None:
        raise NetworkError(
            step.network,
            f"the node has no bridge {step.bridge!r}",
            hint="create it, or change network.bridge or networks in the agent's configuration",
        )
    return index


def _join_vlan(ip: IPRoute, step: CreateTap, index: int, bridge: int) -> None:
    info = ip.get_links(bridge)[0].get_attr("IFLA_LINKINFO")
    data = info.get_attr("IFLA_INFO_DATA") if info is not None else None
    if data is None or not data.get_attr("IFLA_BR_VLAN_FILTERING"):
        raise HostUnsupported(
            f"VLANs on the bridge {step.bridge}",
            f"network {step.network!r} is its VLAN {step.vlan}, and it does not filter VLANs",
            hint="set vlan_filtering of the bridge",
        )
    present = ip.get_vlans(family=socket.AF_BRIDGE, index=index)
    for entry in _vlans(present):
        if entry != step.vlan:
            ip.vlan_filter("del", index=index, vlan_info={"vid": entry})
    ip.vlan_filter("add", index=index, vlan_info={"vid": step.vlan, "flags": _PVID_UNTAGGED})


def _vlans(ports: object) -> list[int]:
    specs = [port.get_attr("IFLA_AF_SPEC") for port in ports] if isinstance(ports, list | tuple) else []
    return [
        int(info["vid"])
        for spec in specs
        if spec is not None
        for info in spec.get_attrs("IFLA_BRIDGE_VLAN_INFO")
    ]
