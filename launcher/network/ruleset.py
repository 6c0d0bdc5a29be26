# SPDX-License-Identifier: Apache-2.0
"""Steps -> nftables rulesets as data, in the JSON of libnftables-json(5). Pure.

Every ruleset replaces one table of ours in a single transaction, and names no table of anybody else.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator
from typing import Any, Final

from launcher.plan.steps import (
    ForwardedPorts,
    ForwardNodePorts,
    GuardLink,
    NodePort,
    SharePool,
    TranslateAddresses,
)

Command = dict[str, Any]
Expression = dict[str, Any]

TABLE: Final = "launcher"
"""Our tables of the families inet and netdev, in the node's namespace (there only inet) and in each
instance's. What guards an instance's taps in the node's namespace has a table that its uid names."""

POOL_CHAIN: Final = "postrouting"
"""The chain of the node's table that translates what guests send beyond the node."""

DHCP_SERVER, DHCP_CLIENT, DHCPV6_SERVER = 67, 68, 547
LINK_LOCAL: Final = ipaddress.ip_network("fe80::/10")
ROUTER_ADVERTISEMENT, NEIGHBOUR_ADVERTISEMENT, REDIRECT = 134, 136, 137
"""Types of ICMPv6 (RFC 4861)."""
TARGET_OFFSET: Final = 64
"""Bits of a neighbour advertisement before its target."""
LINK_LOCAL_TOP: Final = 0xFE80 >> 6
"""The ten bits that every link-local address begins with."""
FILTER_PRIORITY, DNAT_PRIORITY, SNAT_PRIORITY = -500, -100, 100

_DROP: Final[Expression] = {"drop": None}
_ACCEPT: Final[Expression] = {"accept": None}


def guard_table(step: GuardLink) -> str:
    """The netdev table that the step's chain is in: one for an instance."""
    return TABLE if step.namespace is not None else f"{TABLE}_{step.owner}"


def guard_rules(step: GuardLink) -> list[Command]:
    """What may come in at the link, as one chain of it, whatever else the instance's table holds."""
    table = guard_table(step)
    made = _hooked("netdev", table, step.link, "filter", "ingress", FILTER_PRIORITY, dev=step.link)
    return [
        {"add": {"table": {"family": "netdev", "name": table}}},
        made,
        # Its link may be another one of the same name: the chain is hooked anew.
        *chain_removal("netdev", table, step.link),
        made,
        *_rules("netdev", table, step.link, _guard(step)),
    ]


def removal(family: str) -> list[Command]:
    """Removes our table of a namespace; one that is not there is made first, so that this cannot fail."""
    return _replaced(family, TABLE)[:2]


def chain_removal(family: str, table: str, name: str) -> list[Command]:
    """Removes the chain, which is there."""
    chain: Command = {"chain": {"family": family, "table": table, "name": name}}
    return [{"flush": chain}, {"delete": chain}]


def translation_rules(step: TranslateAddresses) -> list[Command]:
    """NAT in an instance's namespace: what comes in for the guest, and how what it sends looks outside."""
    pairs = [(guest, _outer_of(guest, step.outer)) for guest in step.guests]
    came_in = _match(_meta("iifname"), step.outside)
    goes_out = _match(_meta("oifname"), step.outside)
    prerouting = [
        [came_in, _match(_payload(_ip(guest), "daddr"), outer), *ports, _translate("dnat", guest)]
        for guest, outer in pairs
        for ports in _forwarded(step.ports)
    ]
    postrouting = [
        [goes_out, _match(_payload(_ip(guest), "saddr"), guest), _translate("snat", outer)]
        for guest, outer in pairs
    ]
    forward = [
        [_match({"ct": {"key": "state"}}, ["established", "related"], "in"), _ACCEPT],
        [_match(_meta("iifname"), step.inside), goes_out, _ACCEPT],
        [came_in, _match({"ct": {"key": "status"}}, "dnat", "in"), _ACCEPT],
    ]
    return [
        *_replaced("inet", TABLE),
        _hooked("inet", TABLE, "prerouting", "nat", "prerouting", DNAT_PRIORITY),
        _hooked("inet", TABLE, "postrouting", "nat", "postrouting", SNAT_PRIORITY),
        _hooked("inet", TABLE, "forward", "filter", "forward", 0, policy="drop"),
        *_rules("inet", TABLE, "prerouting", prerouting),
        *_rules("inet", TABLE, "postrouting", postrouting),
        *_rules("inet", TABLE, "forward", forward),
    ]


def pool_rules(step: SharePool) -> list[Command]:
    """NAT of the node: what guests send beyond it comes from the node."""
    rules = [
        [
            _match(_payload(_ip(pool), "saddr"), _prefix(pool)),
            _match(_payload(_ip(pool), "daddr"), _prefix(pool), "!="),
            {"masquerade": None},
        ]
        for pool in step.pools
    ]
    made = _hooked("inet", TABLE, POOL_CHAIN, "nat", "postrouting", SNAT_PRIORITY)
    return [
        {"add": {"table": {"family": "inet", "name": TABLE}}},
        made,
        *chain_removal("inet", TABLE, POOL_CHAIN)[:1],
        *_rules("inet", TABLE, POOL_CHAIN, rules),
    ]


def node_port_table(step: ForwardNodePorts) -> str:
    """The inet table of the step's chains: the instance's."""
    return f"{TABLE}_{step.owner}"


def node_port_rules(step: ForwardNodePorts) -> dict[str, list[Command]]:
    """Ports of the node that lead to a guest, chain by chain.

    Translated is what comes to an address of the node, from beyond it or from the node itself; not what the
    node says to its loopback, which can go nowhere else. The way back is connection tracking's.
    """
    chosen = [(address, _to_guest(address, port)) for address in step.outer for port in step.ports]
    return {
        "prerouting": _nat_chain(node_port_table(step), "prerouting", (rule for _, rule in chosen)),
        "output": _nat_chain(
            node_port_table(step), "output", ([_beside_loopback(address), *rule] for address, rule in chosen)
        ),
    }


def _nat_chain(table: str, hook: str, rules: Iterable[list[Expression]]) -> list[Command]:
    return [
        {"add": {"table": {"family": "inet", "name": table}}},
        _hooked("inet", table, hook, "nat", hook, DNAT_PRIORITY),
        *chain_removal("inet", table, hook)[:1],
        *_rules("inet", table, hook, rules),
    ]


def _to_guest(outer: str, port: NodePort) -> list[Expression]:
    return [
        _match(_meta("nfproto"), "ipv6" if _ip(outer) == "ip6" else "ipv4"),
        _match({"fib": {"result": "type", "flags": ["daddr"]}}, "local"),
        _match(_payload(port.protocol, "dport"), port.node),
        {"dnat": {"family": _ip(outer), "addr": outer, "port": port.guest}},
    ]


def _beside_loopback(outer: str) -> Expression:
    loopback = "::1" if _ip(outer) == "ip6" else _prefix("127.0.0.0/8")
    return _match(_payload(_ip(outer), "daddr"), loopback, "!=")


def _guard(step: GuardLink) -> Iterator[list[Expression]]:
    yield [_match(_payload("ether", "saddr"), step.mac, "!="), _DROP]
    yield [_match(_payload("arp", "saddr ether"), step.mac, "!="), _DROP]
    yield [_match(_payload("udp", "sport"), {"set": [DHCP_SERVER, DHCPV6_SERVER]}), _DROP]
    yield [_match(_payload("icmpv6", "type"), {"set": [ROUTER_ADVERTISEMENT, REDIRECT]}), _DROP]
    if not step.addresses:
        return
    known = {"set": ["arp", *sorted({_ip(address) for address in step.addresses})]}
    yield [_match(_meta("protocol"), known, "!="), _DROP]
    for address in step.addresses:
        if _ip(address) == "ip":
            # Before it has its lease a guest speaks from no address, to DHCP servers and to ask who has one.
            asking = [
                _match(_payload("ip", "saddr"), "0.0.0.0"),  # noqa: S104 - no address, not all of them
                _match(_payload("udp", "dport"), DHCP_SERVER),
                _ACCEPT,
            ]
            yield asking
            yield [_match(_payload("arp", "saddr ip"), {"set": ["0.0.0.0", address]}, "!="), _DROP]  # noqa: S104
            yield [_match(_payload("ip", "saddr"), address, "!="), _DROP]
        else:
            own = {"set": [_prefix("::/128"), address, _prefix(str(LINK_LOCAL))]}
            yield [_match(_payload("ip6", "saddr"), own, "!="), _DROP]
            advertised = _match(_payload("icmpv6", "type"), NEIGHBOUR_ADVERTISEMENT)
            yield [advertised, _match(_raw(TARGET_OFFSET, 10), LINK_LOCAL_TOP), _ACCEPT]
            yield [advertised, *_target_is(address), _ACCEPT]
            yield [advertised, _DROP]


def _target_is(address: str) -> Iterator[Expression]:
    """The target of an advertisement in four words: JSON has no numbers of 128 bits."""
    packed = ipaddress.ip_address(address).packed
    for word in range(4):
        value = int.from_bytes(packed[4 * word : 4 * word + 4])
        yield _match(_raw(TARGET_OFFSET + 32 * word, 32), value)


def _forwarded(ports: tuple[ForwardedPorts, ...]) -> Iterator[list[Expression]]:
    if not ports:
        yield []
        return
    for protocol in ("tcp", "udp"):
        wanted = [
            one.start if one.start == one.end else {"range": [one.start, one.end]}
            for one in _merged(one for one in ports if one.protocol == protocol)
        ]
        if wanted:
            yield [_match(_payload(protocol, "dport"), {"set": wanted})]


def _merged(ports: Iterable[ForwardedPorts]) -> list[ForwardedPorts]:
    """Without overlaps: a set refuses intervals that meet."""
    merged: list[ForwardedPorts] = []
    for one in sorted(ports, key=lambda p: p.start):
        if merged and one.start <= merged[-1].end + 1:
            last = merged.pop()
            one = ForwardedPorts(protocol=last.protocol, start=last.start, end=max(last.end, one.end))
        merged.append(one)
    return merged


def _outer_of(guest: str, outer: tuple[str, ...]) -> str:
    return next(address for address in outer if _ip(address) == _ip(guest))


def _replaced(family: str, name: str) -> list[Command]:
    """A fresh table: adding one that is there does nothing, so that deleting it never fails."""
    table = {"table": {"family": family, "name": name}}
    return [{"add": table}, {"delete": table}, {"add": table}]


def _hooked(
    family: str,
    table: str,
    name: str,
    kind: str,
    hook: str,
    priority: int,
    *,
    policy: str = "accept",
    dev: str = "",
) -> Command:
    chain: Command = {"family": family, "table": table, "name": name, "type": kind, "hook": hook}
    return {"add": {"chain": {**chain, "prio": priority, "policy": policy, **({"dev": dev} if dev else {})}}}


def _rules(family: str, table: str, chain: str, rules: Iterable[list[Expression]]) -> Iterator[Command]:
    for rule in rules:
        yield {"add": {"rule": {"family": family, "table": table, "chain": chain, "expr": rule}}}


def _match(left: Expression, right: object, op: str = "==") -> Expression:
    return {"match": {"op": op, "left": left, "right": right}}


def _payload(protocol: str, field: str) -> Expression:
    return {"payload": {"protocol": protocol, "field": field}}


def _raw(offset: int, length: int) -> Expression:
    return {"payload": {"base": "th", "offset": offset, "len": length}}


def _meta(key: str) -> Expression:
    return {"meta": {"key": key}}


def _translate(kind: str, address: str) -> Expression:
    return {kind: {"family": _ip(address), "addr": address}}


def _prefix(text: str) -> Expression:
    network = ipaddress.ip_network(text)
    return {"prefix": {"addr": str(network.network_address), "len": network.prefixlen}}


def _ip(address: str) -> str:
    return "ip6" if ":" in address else "ip"
