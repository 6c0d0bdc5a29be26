# SPDX-License-Identifier: Apache-2.0
"""A guest's addresses and options -> the text of a dnsmasq configuration. Pure.

Whatever comes from a manifest is written as a checked address, name or number, or as bytes in hexadecimal:
no text can begin a line or an option of its own.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from pathlib import PurePath
from typing import Final

from launcher.errors import NetworkError
from launcher.network.resolver import Resolver, with_subdomain
from launcher.plan.steps import ServeAddresses

ROUTERS, DNS, DOMAIN, MTU, NTP, TFTP_SERVER, BOOT_FILE, SEARCH, ROUTES = 3, 6, 15, 26, 42, 66, 67, 119, 121
"""DHCP options (RFC 2132, 3397, 3442)."""
V6_LEASE: Final = "2m"
"""dnsmasq keeps an address for the DUID that had it, and a boot loader, an installer and a system each have
their own: the shortest lease dnsmasq gives is the longest time that the next one waits."""
ADVERTISE_EVERY_S, ROUTER_LIFETIME_S = 60, 1800
USER: Final = "nobody"

_LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?")
_DOMAIN = re.compile(
    r"(?=.{1,253}\Z)[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?)*"
)
_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")
_LINK = re.compile(r"[a-z0-9]{1,15}")
_PATH = re.compile(r"[A-Za-z0-9/._-]+")
_SAFE = re.compile(r"[ !#-\[\]-~]*")
LONGEST_OPTION: Final = 255
ANYWHERE: Final = "0.0.0.0/0"


def conf_path(step: ServeAddresses) -> PurePath:
    """Where the configuration lies. The server is recognised by this word of its command line."""
    return PurePath(step.directory, "dnsmasq.conf")


def pid_path(step: ServeAddresses) -> PurePath:
    """Where the server writes its process id."""
    return PurePath(step.directory, "dnsmasq.pid")


def leases_path(step: ServeAddresses) -> PurePath:
    """Where the server keeps its leases."""
    return PurePath(step.directory, "leases")


def log_path(step: ServeAddresses) -> PurePath:
    """Where the server complains."""
    return PurePath(step.directory, "dnsmasq.log")


def dnsmasq_conf(step: ServeAddresses, resolver: Resolver) -> str:
    """The configuration for the guest of ``step``; ``resolver`` is what it is to use.

    Raises:
        NetworkError: a value cannot be told a guest.
    """
    return "\n".join((*_process(step), *_ranges(step), *_options(step, resolver))) + "\n"


def _process(step: ServeAddresses) -> Iterator[str]:
    yield "port=0"  # it serves no DNS
    yield f"interface={_checked(step, step.interface, _LINK)}"
    yield "except-interface=lo"
    yield "bind-interfaces"
    yield from ("no-hosts", "no-resolv", "no-ping", "dhcp-authoritative")
    yield f"user={USER}"
    yield f"pid-file={_checked(step, str(pid_path(step)), _PATH)}"
    yield f"dhcp-leasefile={_checked(step, str(leases_path(step)), _PATH)}"
    yield f"log-facility={_checked(step, str(log_path(step)), _PATH)}"
    yield from ("quiet-dhcp", "quiet-dhcp6", "quiet-ra")


def _ranges(step: ServeAddresses) -> Iterator[str]:
    mac = _checked(step, step.mac, _MAC)
    host = [mac, "id:*"]  # one guest, whatever its boot loader and its system call themselves
    for text in step.guests:
        guest = ipaddress.ip_interface(text)
        if guest.version == 4:
            if not step.gateways:
                yield f"shared-network={step.interface},{guest.ip}"
            yield f"dhcp-range={guest.ip},{guest.ip},{guest.netmask},infinite"
            host.append(str(guest.ip))
        else:
            yield f"dhcp-range={guest.ip},{guest.ip},{guest.network.prefixlen},{V6_LEASE}"
            host.append(f"[{guest.ip}]")
            mtu = f"mtu:{step.mtu}," if step.mtu is not None else ""
            yield "enable-ra"
            yield f"ra-param={step.interface},{mtu}{ADVERTISE_EVERY_S},{ROUTER_LIFETIME_S}"
    yield f"dhcp-host={','.join((*host, _checked(step, step.hostname, _LABEL)))}"
    if not step.gateways:
        yield "dhcp-ignore=tag:!known"  # the link is somebody's network, and others are on it


def _options(step: ServeAddresses, resolver: Resolver) -> Iterator[str]:
    servers = [ipaddress.ip_address(text) for text in resolver.nameservers]
    search = [_checked(step, domain, _DOMAIN) for domain in with_subdomain(resolver.search, step.subdomain)]
    if any(":" not in guest for guest in step.guests):
        yield from _routes(step)
        yield _option(DNS, *(str(one) for one in servers if one.version == 4))
        yield _option(DOMAIN, max(search, key=len))
        yield _option(SEARCH, *search)
        if step.mtu is not None:
            yield _option(MTU, str(step.mtu))
        if step.ntp_servers:
            yield _option(NTP, *(str(ipaddress.IPv4Address(text)) for text in step.ntp_servers))
        if step.tftp_server is not None:
            yield _option(TFTP_SERVER, _quoted(step, step.tftp_server))
        if step.boot_file is not None:
            yield _option(BOOT_FILE, _quoted(step, step.boot_file))
        for number, text in step.private:
            yield _option(number, _bytes(step, text))
    if any(":" in guest for guest in step.guests):
        v6 = [f"[{one}]" for one in servers if one.version == 6]
        if v6:
            yield f"dhcp-option=option6:dns-server,{','.join(v6)}"
        yield f"dhcp-option=option6:domain-search,{','.join(search)}"


def _routes(step: ServeAddresses) -> Iterator[str]:
    """Where the guest's packets go: to the gateway, or as the link's own routes say."""
    v4 = [gateway for gateway in step.gateways if ":" not in gateway]
    routes = [(ANYWHERE, v4[0])] if v4 else [route for route in step.routes if ":" not in route[0]]
    told = [
        (ipaddress.IPv4Network(destination), ipaddress.IPv4Address(gateway or 0))
        for destination, gateway in routes
    ]
    out = next((via for destination, via in told if destination.prefixlen == 0 and int(via)), None)
    yield _option(ROUTERS, *([str(out)] if out is not None else []))
    yield _option(ROUTES, *(str(word) for route in told for word in route))


def _option(number: int, *values: str) -> str:
    """An option that is sent whether it is asked for or not; without a value it is not sent at all."""
    return (
        f"dhcp-option-force={','.join((str(int(number)), *values))}"
        if values
        else f"dhcp-option={int(number)}"
    )


def _quoted(step: ServeAddresses, text: str) -> str:
    if _SAFE.fullmatch(text) is None or len(text) > LONGEST_OPTION:
        raise NetworkError(
            step.network,
            "a DHCP option holds at most 255 printable ASCII characters without quotes and backslashes",
        )
    return f'"{text}"'


def _bytes(step: ServeAddresses, text: str) -> str:
    """Text as bytes in hexadecimal; a single byte would be read as a number."""
    data = text.encode()
    if len(data) > LONGEST_OPTION:
        raise NetworkError(
            step.network, f"a DHCP option of {len(data)} bytes is longer than {LONGEST_OPTION}"
        )
    return data.hex(":") if len(data) > 1 else _quoted(step, text)


def _checked(step: ServeAddresses, text: str, pattern: re.Pattern[str]) -> str:
    if pattern.fullmatch(text) is None:
        raise NetworkError(step.network, f"{text[:80]!r} cannot be told by DHCP")
    return text
