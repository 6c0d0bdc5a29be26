# SPDX-License-Identifier: Apache-2.0
"""What must exist on the node for each interface, as steps: taps, and behind masquerade a namespace. Pure.

docs/network.md draws what the steps of one interface make.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from launcher.plan.address_service import address_service
from launcher.plan.attached import beside, bridged_there, masqueraded_there
from launcher.plan.context import PlanContext
from launcher.plan.devices.model import DevicesPlan, InterfacePlan
from launcher.plan.masquerade import GATEWAY_MAC, forwarded_ports, ranges
from launcher.plan.node_networks import bridged_network, plugin_of
from launcher.plan.settings import Binding
from launcher.plan.steps import (
    AnyStep,
    CreateMacvtap,
    CreateNetworkNamespace,
    CreateTap,
    CreateVeth,
    ForwardNodePorts,
    ForwardPackets,
    GuardLink,
    JoinLinks,
    LendFunction,
    MakeDirectory,
    ServeAddresses,
    SharePool,
    TranslateAddresses,
)
from launcher.spec.model import Interface, Network

INSIDE, OUTSIDE = "guest", "uplink"
"""Names of the links in an instance's namespace."""
NETWORK_STEPS = (
    LendFunction,
    CreateTap,
    CreateMacvtap,
    CreateNetworkNamespace,
    CreateVeth,
    JoinLinks,
    ForwardPackets,
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
    """The steps of all interfaces, those on taps first, each in the manifest's order."""
    manifest = {nic.name: nic for nic in context.devices.interfaces}
    networks = {network.name: network for network in context.vmi.spec.networks}
    for nic in devices.interfaces:
        if nic.tap is None:
            continue
        asked, network = manifest[nic.name], networks.get(nic.name)
        given = context.allocations.attachments.get(nic.name)
        plugin = plugin_of(context, asked)
        if plugin is not None and plugin.attachment in ("tap", "macvtap"):
            yield _plugged(context, nic, nic.tap, plugin)
        elif given is not None and asked.masquerade is not None:
            yield from masqueraded_there(context, nic, nic.tap, asked, network, given)
            yield from _node_ports(context, nic.name)
        elif given is not None:
            yield from bridged_there(context, nic, nic.tap, asked, given)
        elif asked.masquerade is not None and context.allocations.outer:
            yield from _masqueraded(context, nic, nic.tap, asked, network)
        else:
            yield from _bridged(context, nic, nic.tap, network)
    for asked in context.devices.interfaces:
        if asked.sriov is not None and asked.state != "absent":
            yield from _lent(context, asked)


def _lent(context: PlanContext, asked: Interface) -> Iterator[AnyStep]:
    given = context.allocations.attachments.get(asked.name)
    if given is None or given.function is None:
        return
    mac = asked.mac_address or given.mac or context.allocations.macs.get(asked.name) or given.function.mac
    yield LendFunction(
        owner=context.allocations.uid,
        network=asked.name,
        device=given.device,
        link=given.function.link,
        number=given.function.number,
        mac=mac.lower().replace("-", ":"),
        vlan=given.vlan,
        was=given.function,
    )


def _plugged(context: PlanContext, nic: InterfacePlan, tap: str, plugin: Binding) -> AnyStep:
    owner = context.allocations.uid
    if plugin.attachment == "tap":
        return CreateTap(owner=owner, network=nic.name, name=tap, mtu=nic.mtu, queues=nic.queues or 1)
    return CreateMacvtap(
        owner=owner,
        network=nic.name,
        name=tap,
        link=plugin.link,
        mode=plugin.mode,
        mac=nic.mac,
        mtu=nic.mtu,
    )


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
    wire, uplink = beside(tap, "lw"), beside(tap, "lu")
    families = tuple(ipaddress.ip_address(address).version for address in outer)
    inner = ranges(network, families)
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
        peer_addresses=inner.gateways_in,
    )
    yield JoinLinks(owner=owner, network=name, first=tap, second=wire)
    if context.settings.network.guard and nic.mac is not None:
        yield GuardLink(
            owner=owner, network=name, link=INSIDE, mac=nic.mac, addresses=inner.guests, namespace=namespace
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
        guests=inner.guests,
        outer=outer,
        ports=tuple(forwarded_ports(asked)),
    )
    yield from _node_ports(context, name)
    yield address_service(
        context,
        nic,
        asked,
        namespace=namespace,
        interface=INSIDE,
        directory=paths.network,
        guests=inner.guests_in,
        gateways=inner.gateways,
    )


def _node_ports(context: PlanContext, name: str) -> Iterator[AnyStep]:
    chosen = context.allocations
    if chosen.node_ports:
        yield ForwardNodePorts(owner=chosen.uid, network=name, outer=chosen.outer, ports=chosen.node_ports)


def _alone(address: str) -> str:
    return f"{address}/{ipaddress.ip_address(address).max_prefixlen}"
