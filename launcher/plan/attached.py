# SPDX-License-Identifier: Apache-2.0
"""Steps of interfaces whose link somebody made and handed in: in a network namespace that is not ours. Pure.

docs/network.md draws them.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from launcher.plan.address_service import address_service
from launcher.plan.allocations import Attachment
from launcher.plan.context import PlanContext
from launcher.plan.devices.model import InterfacePlan
from launcher.plan.masquerade import GATEWAY_MAC, forwarded_ports, ranges
from launcher.plan.steps import (
    AnyStep,
    CreateTap,
    CreateVeth,
    ForwardPackets,
    GuardLink,
    JoinLinks,
    MakeDirectory,
    TranslateAddresses,
)
from launcher.spec.model import Interface, Network

SERVER = "169.254.75.10/32"
"""What a server of addresses calls itself on a link that is in no network of the guest's: link-local, as
KubeVirt's servers do."""


def bridged_there(
    context: PlanContext, nic: InterfacePlan, tap: str, asked: Interface, given: Attachment
) -> Iterator[AnyStep]:
    """The guest takes the place of the link: its frames, its MAC address, and the addresses it was given."""
    owner, name, peer = context.allocations.uid, nic.name, beside(tap, "lg")
    v4 = tuple(address for address in given.addresses if ":" not in address)
    # A binding plugin hands no addresses over.
    handed = v4[:1] if asked.bridge is not None else ()
    yield from _joined(context, nic, tap, given, peer, addresses=(SERVER,) if handed else ())
    yield JoinLinks(
        owner=owner,
        network=name,
        first=peer,
        second=given.interface,
        namespace=given.namespace,
        answers_dhcp=bool(handed),
    )
    if not handed:
        return
    folder = f"{context.paths.network}/{tap}"
    yield MakeDirectory(owner=owner, path=context.paths.network)
    yield MakeDirectory(owner=owner, path=folder)
    yield address_service(
        context,
        nic,
        asked,
        namespace=given.namespace,
        interface=peer,
        directory=folder,
        guests=handed,
        routes=tuple(route for route in given.routes if ":" not in route.destination),
    )


def masqueraded_there(
    context: PlanContext,
    nic: InterfacePlan,
    tap: str,
    asked: Interface,
    network: Network | None,
    given: Attachment,
) -> Iterator[AnyStep]:
    """The guest is behind the link, which keeps its addresses."""
    owner, name, peer = context.allocations.uid, nic.name, beside(tap, "lg")
    outer = outer_addresses(given)
    families = tuple(ipaddress.ip_address(address).version for address in outer)
    inner, folder = ranges(network, families), f"{context.paths.network}/{tap}"
    yield from _joined(context, nic, tap, given, peer, mac=GATEWAY_MAC, addresses=inner.gateways_in)
    if context.settings.network.guard and nic.mac is not None:
        yield GuardLink(
            owner=owner,
            network=name,
            link=peer,
            mac=nic.mac,
            addresses=inner.guests,
            namespace=given.namespace,
            lent=True,
        )
    versions = tuple(family for family in families if family not in given.forwards)
    if versions:
        yield ForwardPackets(owner=owner, network=name, namespace=given.namespace, versions=versions)
    yield TranslateAddresses(
        owner=owner,
        network=name,
        namespace=given.namespace,
        inside=peer,
        outside=given.interface,
        guests=inner.guests,
        outer=outer,
        ports=tuple(forwarded_ports(asked)),
        lent=True,
    )
    yield MakeDirectory(owner=owner, path=context.paths.network)
    yield MakeDirectory(owner=owner, path=folder)
    yield address_service(
        context,
        nic,
        asked,
        namespace=given.namespace,
        interface=peer,
        directory=folder,
        guests=inner.guests_in,
        gateways=inner.gateways,
    )


def outer_addresses(given: Attachment) -> tuple[str, ...]:
    """The addresses that a guest behind the link is reached at: the first of each family."""
    found: dict[int, str] = {}
    for text in given.addresses:
        address = ipaddress.ip_interface(text).ip
        if not address.is_link_local:
            found.setdefault(address.version, str(address))
    return tuple(found[version] for version in sorted(found))


def beside(tap: str, prefix: str) -> str:
    """The name of a link that goes with a tap: of 15 characters the first two differ."""
    return f"{prefix}{tap.removeprefix('lt')}"[:15]


def _joined(
    context: PlanContext,
    nic: InterfacePlan,
    tap: str,
    given: Attachment,
    peer: str,
    *,
    mac: str | None = None,
    addresses: tuple[str, ...],
) -> Iterator[AnyStep]:
    """The tap, and the wire from it to ``peer`` in the namespace."""
    owner, name, wire = context.allocations.uid, nic.name, beside(tap, "lw")
    yield CreateTap(owner=owner, network=name, name=tap, mtu=nic.mtu, queues=nic.queues or 1)
    yield CreateVeth(
        owner=owner,
        network=name,
        name=wire,
        namespace=given.namespace,
        peer=peer,
        peer_mac=mac,
        mtu=nic.mtu,
        peer_addresses=addresses,
        lent=True,
    )
    yield JoinLinks(owner=owner, network=name, first=tap, second=wire)
