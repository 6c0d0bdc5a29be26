# SPDX-License-Identifier: Apache-2.0
"""The configuration of networks, checked, as planning wants it. Pure mapping."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator

from launcher.errors import InvalidRequest, Violation
from launcher.host.config import Config
from launcher.plan.settings import Binding, BridgedNetwork, FunctionNetwork, NetworkSettings

SMALLEST_MTU, LARGEST_MTU = 1280, 65521
"""What IPv6 needs at least (RFC 8200), and the most that a virtio card is told by QEMU."""
LAST_VLAN = 4094
LONGEST_PROGRAM_S = 300.0
LAST_PORT = 65535
LONGEST_PREFIX = {4: 29, 6: 112}
"""A pool has the node's own address and some for guests."""
_LINK = re.compile(r"[^\s/:]{1,15}")
_SPAN = re.compile(r"([0-9]{1,5})-([0-9]{1,5})")
_DOMAIN = re.compile(
    r"(?=.{1,253}\Z)[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?)*"
)


def network_settings(config: Config) -> NetworkSettings:
    """Settings of guests' networks.

    Raises:
        InvalidRequest: a value cannot be; all that are wrong are named.
    """
    span, wrong_span = _node_ports(config)
    wrong = [*_pools(config), *_names(config), *_bridges(config), *_bindings(config), *wrong_span]
    if wrong:
        raise InvalidRequest(wrong, hint="see docs/configuration.md")
    network = config.network
    return NetworkSettings(
        pools=tuple(pool for pool in (network.pool, network.pool6) if pool),
        mtu=network.mtu,
        guard=network.guard,
        nameservers=network.nameservers,
        search=tuple(domain.lower() for domain in network.search),
        bridges={
            name: BridgedNetwork(bridge=one.bridge, mtu=one.mtu, vlan=one.vlan, guard=one.guard)
            for name, one in config.networks.items()
            if one.bridge
        },
        cards={
            name: FunctionNetwork(link=one.card, vlan=one.vlan)
            for name, one in config.networks.items()
            if one.card
        },
        bindings={
            name: Binding(
                attachment=one.attachment,
                link=one.link,
                mode=one.mode,
                socket=one.socket,
                program=one.program,
                timeout_s=one.timeout_s,
                migrate=one.migrate,
            )
            for name, one in config.bindings.items()
        },
        node_ports=span,
    )


def _node_ports(config: Config) -> tuple[tuple[int, int] | None, list[Violation]]:
    text = config.network.node_ports
    if not text:
        return None, []
    found = _SPAN.fullmatch(text)
    if found is None or not 1 <= int(found[1]) <= int(found[2]) <= LAST_PORT:
        accepted = f"accepted is FIRST-LAST, such as 30000-32767, with 1 to {LAST_PORT}"
        return None, [_wrong("network.node_ports", text, accepted)]
    return (int(found[1]), int(found[2])), []


def _pools(config: Config) -> Iterator[Violation]:
    for key, text, version in (("pool", config.network.pool, 4), ("pool6", config.network.pool6, 6)):
        if not text:
            continue
        field, longest = f"network.{key}", LONGEST_PREFIX[version]
        try:
            pool = ipaddress.ip_network(text)
        except ValueError as error:
            yield _wrong(field, text, f"not an address range: {error}")
            continue
        if pool.version != version or pool.prefixlen > longest:
            yield _wrong(
                field, text, f"accepted is an IPv{version} range of at most {longest} bits of prefix"
            )


def _names(config: Config) -> Iterator[Violation]:
    for text in config.network.nameservers:
        try:
            ipaddress.ip_address(text)
        except ValueError:
            yield _wrong("network.nameservers", text, "accepted are addresses such as 192.0.2.53")
    for text in config.network.search:
        if _DOMAIN.fullmatch(text.lower()) is None:
            yield _wrong("network.search", text, "accepted are domains such as example.org")
    yield from _mtu("network.mtu", config.network.mtu)
    if config.network.bridge and _LINK.fullmatch(config.network.bridge) is None:
        yield _wrong("network.bridge", config.network.bridge, "accepted is the name of a bridge")


def _bridges(config: Config) -> Iterator[Violation]:
    for name, one in config.networks.items():
        field = f"networks.{name}"
        if one.card and one.bridge:
            yield _wrong(f"{field}.card", one.card, "a network is a bridge or a card, not both")
        elif one.card and _LINK.fullmatch(one.card) is None:
            yield _wrong(f"{field}.card", one.card, "accepted is the link of a card with virtual functions")
        elif one.card and (one.mtu or one.guard):
            yield _wrong(field, one.card, "mtu and guard are a bridge's; functions have what their card has")
        elif not one.card and _LINK.fullmatch(one.bridge) is None:
            yield _wrong(f"{field}.bridge", one.bridge, "accepted is the name of a bridge")
        if not 0 <= one.vlan <= LAST_VLAN:
            yield _wrong(f"{field}.vlan", str(one.vlan), f"accepted are 1 to {LAST_VLAN}, or 0 for none")
        yield from _mtu(f"{field}.mtu", one.mtu)


def _bindings(config: Config) -> Iterator[Violation]:
    for name, one in config.bindings.items():
        field = f"bindings.{name}"
        if one.attachment == "macvtap" and _LINK.fullmatch(one.link) is None:
            yield _wrong(f"{field}.link", one.link, "macvtap needs the name of a link of the node")
        if one.attachment == "vhost-user" and not one.socket.startswith("/"):
            yield _wrong(f"{field}.socket", one.socket, "vhost-user needs the path of a socket")
        if not one.attachment and not one.program:
            yield _wrong(field, "", "a binding without an attachment needs a program")
        if one.program and not one.program[0].startswith("/"):
            yield _wrong(
                f"{field}.program", one.program[0], "accepted is the path of a program, arguments after it"
            )
        if not 0 < one.timeout_s <= LONGEST_PROGRAM_S:
            yield _wrong(
                f"{field}.timeout_s", f"{one.timeout_s:g}", f"accepted is up to {LONGEST_PROGRAM_S:g}"
            )


def _mtu(field: str, mtu: int) -> Iterator[Violation]:
    if mtu and not SMALLEST_MTU <= mtu <= LARGEST_MTU:
        yield _wrong(field, str(mtu), f"accepted are {SMALLEST_MTU} to {LARGEST_MTU}, or 0 for the kernel's")


def _wrong(field: str, value: str, message: str) -> Violation:
    return Violation(field=field, type="FieldValueInvalid", value=value[:80], message=message)
