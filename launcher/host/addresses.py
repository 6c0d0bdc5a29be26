# SPDX-License-Identifier: Apache-2.0
"""An address of this host, said as one, as an interface, or as the network that it is in. Reads only."""

from __future__ import annotations

import ipaddress
import socket

import psutil

from launcher.errors import InvalidRequest, Violation

_FAMILIES = (socket.AF_INET, socket.AF_INET6)


def own_address(said: str, *, field: str) -> str:
    """``said`` if it is an address; else the first (IPv4 before IPv6) of the interface or network ``said``.

    Raises:
        InvalidRequest: there is no such interface, or no address of the host's in that network.
    """
    try:
        return str(ipaddress.ip_address(said))
    except ValueError:
        found = _found(said)
    if not found:
        known = ", ".join(f"{name} {address}" for name, address in _all())
        message = f"neither an address nor an interface nor a network of this host's, which has {known}"
        raise InvalidRequest([Violation(field=field, type="FieldValueInvalid", value=said, message=message)])
    return min(found, key=lambda address: (":" in address, address))


def _found(said: str) -> list[str]:
    try:
        network = ipaddress.ip_network(said)
    except ValueError:
        return [address for name, address in _all() if name == said]
    return [address for _, address in _all() if ipaddress.ip_address(address) in network]


def _all() -> list[tuple[str, str]]:
    """(interface, address) of everything but link-local addresses, which need a scope to be reached."""
    return [
        (name, entry.address)
        for name, entries in psutil.net_if_addrs().items()
        for entry in entries
        if entry.family in _FAMILIES and "%" not in entry.address
    ]
