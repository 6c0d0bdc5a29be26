# SPDX-License-Identifier: Apache-2.0
"""Rules of what an interface forwards and what its DHCP server says: ports, ranges of them, options."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from typing import Final

from launcher.errors import Violation
from launcher.spec.model import DHCPOptions, Interface, PortRange
from launcher.spec.rules.checks import at_most, in_range, one_of, printable, unique
from launcher.spec.rules.context import Context, Rule
from launcher.spec.rules.finding import invalid, required

PROTOCOLS: Final = ("TCP", "UDP")
LARGEST_PORT: Final = 65535
MOST_RANGES: Final = 10
# DHCP options for private use (RFC 3942); the length of any option is one byte.
PRIVATE_OPTIONS: Final = (224, 254)
LONGEST_OPTION: Final = 255

# The name of a service (RFC 6335): at least one letter, no two hyphens in a row.
_SERVICE: Final = re.compile(r"(?!.*--)(?=.*[a-z])[a-z0-9](?:[a-z0-9-]{0,13}[a-z0-9])?")


def is_service_name(text: str) -> bool:
    """Whether the text can be the name of a port: at most 15 lower case letters, digits and '-'."""
    return len(text) <= 15 and _SERVICE.fullmatch(text) is not None


def ports(ctx: Context) -> Iterator[Violation]:
    """Ports are numbers with a protocol and perhaps a name of their own."""
    for path, interface in ctx.interfaces:
        for number, port in enumerate(interface.ports):
            field = f"{path}.ports[{number}]"
            yield from in_range(f"{field}.port", port.port, 1, LARGEST_PORT)
            yield from one_of(f"{field}.protocol", port.protocol, PROTOCOLS)
            if port.name and not is_service_name(port.name):
                yield invalid(
                    f"{field}.name",
                    port.name,
                    "accepted are at most 15 lower case letters, digits and single '-'",
                )
        yield from unique(
            (f"{path}.ports[{n}].name", port.name) for n, port in enumerate(interface.ports) if port.name
        )
        if interface.port_ranges:
            yield from _ranges(path, interface)


def dhcp(ctx: Context) -> Iterator[Violation]:
    """DHCP options are text that fits, time servers are IPv4 addresses, private options are private."""
    for path, interface in ctx.interfaces:
        if interface.dhcp_options is not None:
            yield from _dhcp(f"{path}.dhcpOptions", interface.dhcp_options)


def _ranges(path: str, interface: Interface) -> Iterator[Violation]:
    yield from at_most(f"{path}.portRanges", interface.port_ranges, MOST_RANGES)
    if interface.masquerade is None:
        yield invalid(f"{path}.portRanges", None, "ranges of ports need the binding masquerade")
    if interface.ports:
        yield invalid(f"{path}.portRanges", None, "ports and portRanges exclude each other")
    seen: list[tuple[PortRange, str]] = []
    for number, item in enumerate(interface.port_ranges[: MOST_RANGES + 1]):
        field = f"{path}.portRanges[{number}]"
        if not item.protocol:
            yield required(f"{field}.protocol", "needs a protocol: TCP or UDP")
        yield from one_of(f"{field}.protocol", item.protocol, PROTOCOLS)
        yield from in_range(f"{field}.start", item.start, 1, LARGEST_PORT)
        yield from in_range(f"{field}.end", item.end, 1, LARGEST_PORT)
        if item.end < item.start:
            yield invalid(f"{field}.end", item.end, f"must not be less than the start, {item.start}")
        for other, where in seen:
            if item.protocol == other.protocol and item.start <= other.end and other.start <= item.end:
                yield invalid(field, f"{item.start}-{item.end}", f"overlaps {where}")
        seen.append((item, field))


def _dhcp(path: str, options: DHCPOptions) -> Iterator[Violation]:
    yield from printable(f"{path}.bootFileName", options.boot_file_name, LONGEST_OPTION)
    yield from printable(f"{path}.tftpServerName", options.tftp_server_name, LONGEST_OPTION)
    for number, server in enumerate(options.ntp_servers):
        try:
            ipaddress.IPv4Address(server)
        except ValueError:
            yield invalid(f"{path}.ntpServers[{number}]", server, "not an IPv4 address")
    for number, option in enumerate(options.private_options):
        field = f"{path}.privateOptions[{number}]"
        yield from in_range(f"{field}.option", option.option, *PRIVATE_OPTIONS)
        if not option.value:
            yield required(f"{field}.value", "needs a text")
        yield from printable(f"{field}.value", option.value, LONGEST_OPTION)
    yield from unique(
        (f"{path}.privateOptions[{n}].option", o.option) for n, o in enumerate(options.private_options)
    )


RULES: tuple[Rule, ...] = (ports, dhcp)
