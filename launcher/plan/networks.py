# SPDX-License-Identifier: Apache-2.0
"""What must exist on the node for each interface, as steps: taps, and behind masquerade a namespace. Pure.

docs/network.md draws what the steps of one interface make.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import Literal

from launcher.plan.context import PlanContext
from launcher.plan.devices.model import DevicesPlan, InterfacePlan
from launcher.plan.settings import BridgedNetwork
from launcher.plan.steps import (
    AnyStep,
    CreateNetworkNamespace,
    CreateTap,
    CreateVeth,
    ForwardedPorts,
    ForwardNodePorts,
    GuardLink,
    JoinLinks,
    MakeDirectory,
    ServeAddresses,
    SharePool,
    TranslateAddresses,
)
from launcher.spec.model import Interface, Network

# The API's defaults of vmNetworkCIDR and vmIPv6NetworkCIDR.
GUESTS = {4: "10.0.2.0/24", 6: "fd10:0:2::/120"}
# Guests reject the MAC address of no gateway, and it is the same on every node: a guest that moved finds its
# neighbour where it was. The rules of the specification keep it from guests.
GATEWAY_MAC = "02:00:00:00:00:00"
INSIDE, OUTSIDE = "guest", "uplink"
"""Names of the links in an instance's namespace."""
HOSTNAME_LENGTH = 63
NETWORK_STEPS = (
    CreateTap,
    CreateNetworkNamespace,
    CreateVeth,
    JoinLinks,
    GuardLink,
    TranslateAddresses,
    ForwardNodePorts,
    SharePool,
    ServeAddresses,
)


def network_of(step: AnyStep) -> str | None:
    """The interface that ``step`` is for; None: for none."""
    return step.network if isinstance(step, NETWORK_STEPS) else None


def network_steps(context: PlanContext, devices: DevicesPlan) -> Iterator[AnyStep]:
    """The steps of all interfaces that are on a tap, in the manifest's order."""
    manifest = {nic.name: nic for nic in context.devices.interfaces}
    networks = {network.name: network for network in context.vmi.spec.networks}
    for nic in devices.interfaces:
        if nic.tap is None:
            continue
        asked, network = manifest[nic.name], networks.get(nic.name)
        if asked.masquerade is not None and context.allocations.outer:
            yield from _masqueraded(context, nic, nic.tap, asked, network)
        else:
            yield from _bridged(context, nic, nic.tap, network)


def bridged_network(context: PlanContext, network: Network | None) -> BridgedNetwork | None:
    """The bridge of the node that ``network`` is; None: it is none."""
    settings = context.settings
    if network is None:
        return None
    if network.pod is not None:
        return BridgedNetwork(bridge=settings.pod_bridge) if settings.pod_bridge else None
    if network.multus is None:
        return None
    name = network.multus.network_name
    full = name if "/" in name else f"{context.namespace}/{name}"
    return settings.network.bridges.get(full) or settings.network.bridges.get(full.partition("/")[2])


def interface_mtu(context: PlanContext, asked: Interface) -> int | None:
    """The MTU that the guest is told; None: nobody decided."""
    if asked.masquerade is not None:
        return context.settings.network.mtu or None
    network = next((n for n in context.vmi.spec.networks if n.name == asked.name), None)
    bridged = bridged_network(context, network)
    return (bridged.mtu or None) if bridged is not None else None


def _bridged(
    context: PlanContext, nic: InterfacePlan, tap: str, network: Network | None
) -> Iterator[AnyStep]:
    owner, there = context.allocations.uid, bridged_network(context, network)
    yield CreateTap(
        owner=owner,
        network=nic.name,
        name=tap,
        bridge=there.bridge if there is not None else None,
        mtu=nic.mtu,
        queues=nic.queues or 1,
        vlan=(there.vlan or None) if there is not None else None,
    )
    if there is not None and there.guard and nic.mac is not None:
        yield GuardLink(owner=owner, network=nic.name, link=tap, mac=nic.mac)


def _masqueraded(
    context: PlanContext, nic: InterfacePlan, tap: str, asked: Interface, network: Network | None
) -> Iterator[AnyStep]:
    owner, name, paths = context.allocations.uid, nic.name, context.paths
    namespace, outer = paths.network_namespace, context.allocations.outer
    wire, uplink = _beside(tap, "lw"), _beside(tap, "lu")
    families = tuple(ipaddress.ip_address(address).version for address in outer)
    subnets = tuple(_subnet(network, family) for family in families)
    gateways = tuple(str(subnet.network_address + 1) for subnet in subnets)
    guests = tuple(str(subnet.network_address + 2) for subnet in subnets)
    pools = tuple(
        pool for pool in context.settings.network.pools if ipaddress.ip_network(pool).version in families
    )
    ours = {
        ipaddress.ip_network(pool).version: str(ipaddress.ip_network(pool).network_address + 1)
        for pool in pools
    }
    nodes = tuple(ours[family] for family in families if family in ours)
    yield MakeDirectory(owner=owner, path=paths.network)
    yield CreateNetworkNamespace(owner=owner, network=name, path=namespace)
    yield CreateTap(owner=owner, network=name, name=tap, mtu=nic.mtu, queues=nic.queues or 1)
    yield CreateVeth(
        owner=owner,
        network=name,
        name=wire,
        namespace=namespace,
        peer=INSIDE,
        peer_mac=GATEWAY_MAC,
        mtu=nic.mtu,
        peer_addresses=tuple(
            f"{gateway}/{subnet.prefixlen}" for gateway, subnet in zip(gateways, subnets, strict=True)
        ),
    )
    yield JoinLinks(owner=owner, network=name, first=tap, second=wire)
    if context.settings.network.guard and nic.mac is not None:
        yield GuardLink(
            owner=owner, network=name, link=INSIDE, mac=nic.mac, addresses=guests, namespace=namespace
        )
    yield SharePool(owner=owner, network=name, pools=pools)
    yield CreateVeth(
        owner=owner,
        network=name,
        name=uplink,
        namespace=namespace,
        peer=OUTSIDE,
        mtu=nic.mtu,
        addresses=tuple(map(_alone, nodes)),
        peer_addresses=tuple(map(_alone, outer)),
        routes=tuple(map(_alone, outer)),
        gateways=nodes,
    )
    yield TranslateAddresses(
        owner=owner,
        network=name,
        namespace=namespace,
        inside=INSIDE,
        outside=OUTSIDE,
        guests=guests,
        outer=outer,
        ports=tuple(_ports(asked)),
    )
    if context.allocations.node_ports:
        yield ForwardNodePorts(owner=owner, network=name, outer=outer, ports=context.allocations.node_ports)
    yield _served(
        context,
        nic,
        asked,
        gateways,
        tuple(f"{guest}/{subnet.prefixlen}" for guest, subnet in zip(guests, subnets, strict=True)),
    )


def _served(
    context: PlanContext,
    nic: InterfacePlan,
    asked: Interface,
    gateways: tuple[str, ...],
    guests: tuple[str, ...],
) -> ServeAddresses:
    spec, settings, options = context.vmi.spec, context.settings.network, asked.dhcp_options
    dns = spec.dns_config
    own = spec.dns_policy == "None"
    servers = (*(() if own else settings.nameservers), *(dns.nameservers if dns is not None else ()))
    search = (*(() if own else settings.search), *(dns.searches if dns is not None else ()))
    return ServeAddresses(
        owner=context.allocations.uid,
        network=nic.name,
        namespace=context.paths.network_namespace,
        interface=INSIDE,
        directory=context.paths.network,
        mac=nic.mac or "",
        guests=guests,
        gateways=gateways,
        hostname=(spec.hostname or context.name.partition(".")[0])[:HOSTNAME_LENGTH],
        subdomain=spec.subdomain or None,
        nameservers=servers,
        search=search,
        node_nameservers=not own and not settings.nameservers,
        node_search=not own and not settings.search,
        mtu=nic.mtu,
        ntp_servers=options.ntp_servers if options is not None else (),
        tftp_server=(options.tftp_server_name or None) if options is not None else None,
        boot_file=(options.boot_file_name or None) if options is not None else None,
        private=tuple((o.option, o.value) for o in options.private_options) if options is not None else (),
    )


def _ports(asked: Interface) -> Iterator[ForwardedPorts]:
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


def _beside(tap: str, prefix: str) -> str:
    """The name of a link that goes with a tap: of 15 characters the first two differ."""
    return f"{prefix}{tap.removeprefix('lt')}"[:15]


def _alone(address: str) -> str:
    return f"{address}/{ipaddress.ip_address(address).max_prefixlen}"
