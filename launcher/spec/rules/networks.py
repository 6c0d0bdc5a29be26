# SPDX-License-Identifier: Apache-2.0
"""Rules of ``spec.networks``: one source each, one of them the default, and address ranges with room."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import Final

from launcher.errors import Violation
from launcher.spec.model import Network
from launcher.spec.rules.checks import at_most, dns_subdomain, is_label, is_subdomain, unique
from launcher.spec.rules.context import Context, Rule
from launcher.spec.rules.disks import MOST
from launcher.spec.rules.finding import invalid, not_found, required

NETWORKS: Final = "spec.networks"
# A gateway, a guest, and the first and last address of the range, which nobody has.
FEWEST_ADDRESSES: Final = 4
# What no host has, or only on a link (RFC 6890): of IPv4 "this network", loopback, multicast and reserved; of
# IPv6 the unspecified address and loopback, link-local, multicast.
NOBODYS: Final = {
    4: ("0.0.0.0/8", "127.0.0.0/8", "224.0.0.0/3"),
    6: ("::/127", "fe80::/10", "ff00::/8"),
}

_SOURCES: Final = (("multus", "multus"), ("pod", "pod"), ("resource_claim", "resourceClaim"))


def names(ctx: Context) -> Iterator[Violation]:
    """Networks have unique names, those of interfaces."""
    yield from at_most(NETWORKS, ctx.spec.networks, MOST)
    yield from unique((f"{NETWORKS}[{i}].name", network.name) for i, network in enumerate(ctx.spec.networks))
    interfaces = {interface.name for interface in ctx.devices.interfaces}
    for index, network in enumerate(ctx.spec.networks):
        field = f"{NETWORKS}[{index}].name"
        if not network.name:
            yield required(field, "needs the name of an interface in spec.domain.devices.interfaces")
        elif network.name not in interfaces:
            message = "there is no interface of this name in spec.domain.devices.interfaces"
            yield not_found(field, network.name, message)


def sources(ctx: Context) -> Iterator[Violation]:
    """A network has one source; there is one pod network and one default, not both."""
    pods: list[str] = []
    defaults: list[str] = []
    for index, network in enumerate(ctx.spec.networks):
        path = f"{NETWORKS}[{index}]"
        given = [written for name, written in _SOURCES if getattr(network, name) is not None]
        if not given:
            yield required(path, "needs a source: one of multus, pod, resourceClaim")
        elif len(given) > 1:
            yield invalid(f"{path}.{given[1]}", None, f"a network has one source, not {', '.join(given)}")
        if network.pod is not None:
            pods.append(f"{path}.pod")
        if network.multus is not None and network.multus.default:
            defaults.append(f"{path}.multus.default")
        yield from _multus(path, network)
        yield from _claim(ctx, path, network)
    for field in pods[1:]:
        yield invalid(field, None, f"an instance has one pod network; there is {pods[0]} already")
    for field in defaults[1:]:
        yield invalid(field, True, f"an instance has one default network; there is {defaults[0]} already")
    if pods and defaults:
        yield invalid(defaults[0], True, f"the pod network is the default already: {pods[0]}")


def ranges(ctx: Context) -> Iterator[Violation]:
    """Address ranges are those of their family and have room for a gateway and a guest."""
    for index, network in enumerate(ctx.spec.networks):
        if network.pod is None:
            continue
        path = f"{NETWORKS}[{index}].pod"
        yield from _range(f"{path}.vmNetworkCIDR", network.pod.vm_network_cidr, 4)
        yield from _range(f"{path}.vmIPv6NetworkCIDR", network.pod.vm_ipv6_network_cidr, 6)


def _multus(path: str, network: Network) -> Iterator[Violation]:
    if network.multus is None:
        return
    field = f"{path}.multus.networkName"
    name = network.multus.network_name
    namespace, slash, short = name.rpartition("/")
    if not name:
        yield required(field, "needs the name of a network, as [namespace/]name")
    elif not is_subdomain(short) or (slash and not is_label(namespace)):
        yield invalid(field, name, "not the name of a network; accepted is [namespace/]name")


def _claim(ctx: Context, path: str, network: Network) -> Iterator[Violation]:
    claim = network.resource_claim
    if claim is None:
        return
    yield from resource_claim(ctx, f"{path}.resourceClaim", claim.claim_name, claim.request_name)


def resource_claim(ctx: Context, path: str, name: str | None, request: str | None) -> Iterator[Violation]:
    """A request of a claim that ``spec.resourceClaims`` lists."""
    if not name:
        yield required(f"{path}.claimName", "needs the name of an entry in spec.resourceClaims")
    elif name not in ctx.claims:
        yield not_found(f"{path}.claimName", name, "there is no entry of this name in spec.resourceClaims")
    yield from dns_subdomain(f"{path}.requestName", request, "the name of a request of the claim")


def _range(field: str, text: str | None, version: int) -> Iterator[Violation]:
    if not text:
        return
    example = "10.0.2.0/24" if version == 4 else "fd10:0:2::/120"
    try:
        network = ipaddress.ip_network(text, strict=False)
    except ValueError:
        yield invalid(field, text, f"not an address range such as {example}")
        return
    if network.version != version or "/" not in text:
        yield invalid(field, text, f"not an IPv{version} range such as {example}")
    elif network.num_addresses < FEWEST_ADDRESSES:
        shortest = 30 if version == 4 else 126
        yield invalid(field, text, f"too small; accepted are prefixes of at most {shortest} bits")
    elif any(network.overlaps(ipaddress.ip_network(text)) for text in NOBODYS[version]):
        yield invalid(
            field, text, f"guests cannot have addresses of this range; accepted is one such as {example}"
        )


RULES: tuple[Rule, ...] = (names, sources, ranges)
