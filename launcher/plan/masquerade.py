# SPDX-License-Identifier: Apache-2.0
"""What masquerade has wherever it is: the guest's range, its gateway, and the ports that lead to it. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from launcher.errors import HostUnsupported
from launcher.plan.steps import ForwardedPorts
from launcher.spec.model import Interface, Network

# The API's defaults of vmNetworkCIDR and vmIPv6NetworkCIDR.
GUESTS = {4: "10.0.2.0/24", 6: "fd10:0:2::/120"}
# Guests reject the MAC address of no gateway, and it is the same on every node: a guest that moved finds its
# neighbour where it was. The rules of the specification keep it from guests.
GATEWAY_MAC = "02:00:00:00:00:00"


@dataclass(frozen=True, slots=True)
class Ranges:
    """One of each family: addresses of the gateway and of the guest, without and with their prefix."""

    gateways: tuple[str, ...]
    guests: tuple[str, ...]
    gateways_in: tuple[str, ...]
    guests_in: tuple[str, ...]


def ranges(network: Network | None, families: tuple[int, ...]) -> Ranges:
    """The gateway is the first address of the range that ``network`` names, the guest the second."""
    subnets = tuple(_subnet(network, family) for family in families)
    gateways = tuple(str(subnet.network_address + 1) for subnet in subnets)
    guests = tuple(str(subnet.network_address + 2) for subnet in subnets)
    lengths = tuple(subnet.prefixlen for subnet in subnets)
    return Ranges(
        gateways=gateways,
        guests=guests,
        gateways_in=tuple(f"{one}/{bits}" for one, bits in zip(gateways, lengths, strict=True)),
        guests_in=tuple(f"{one}/{bits}" for one, bits in zip(guests, lengths, strict=True)),
    )


def require_apart(network: Network | None, beside: Iterable[str]) -> None:
    """Refuse guests' ranges that overlap networks of the outside, ``beside``: what is meant for one would go
    to the other.

    Raises:
        HostUnsupported: one does.
    """
    for text in beside:
        outside = ipaddress.ip_network(text, strict=False)
        inside = _subnet(network, outside.version)
        if inside.overlaps(outside):
            field = "vmNetworkCIDR" if outside.version == 4 else "vmIPv6NetworkCIDR"
            raise HostUnsupported(
                f"a network for guests of {inside}",
                f"it overlaps {outside}, by which the guest is reached",
                hint=f"choose another {field}",
            )


def forwarded_ports(asked: Interface) -> Iterator[ForwardedPorts]:
    """The ports that reach the guest; none: all do."""
    for port in asked.ports:
        yield ForwardedPorts(protocol=_protocol(port.protocol), start=port.port, end=port.port)
    for ports in asked.port_ranges:
        yield ForwardedPorts(protocol=_protocol(ports.protocol), start=ports.start, end=ports.end)


def _protocol(asked: str | None) -> Literal["tcp", "udp"]:
    return "udp" if asked == "UDP" else "tcp"


def _subnet(network: Network | None, family: int) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    pod = network.pod if network is not None else None
    asked = None
    if pod is not None:
        asked = pod.vm_network_cidr if family == 4 else pod.vm_ipv6_network_cidr
    return ipaddress.ip_network(asked or GUESTS[family], strict=False)
