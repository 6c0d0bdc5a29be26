# SPDX-License-Identifier: Apache-2.0
"""What dnsmasq has leased, out of its file. Blocking; reads only."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from launcher.network.dnsmasq_conf import leases_path
from launcher.plan.steps import ServeAddresses

LARGEST_FILE: Final = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """An address that the guest of ``network`` took; ``mac`` is empty over DHCPv6, which does not tell."""

    network: str
    address: str
    mac: str = ""


def leases(step: ServeAddresses) -> tuple[Lease, ...]:
    """The present leases of the server of ``step``; none without one."""
    try:
        with Path(leases_path(step)).open(encoding="ascii", errors="replace") as file:
            text = file.read(LARGEST_FILE)
    except OSError:
        return ()
    return tuple(read_leases(text, step.network))


def read_leases(text: str, network: str) -> Iterator[Lease]:
    """The leases of a file. Pure.

    Each is a line of dnsmasq's: "EXPIRY MAC ADDRESS NAME ID", or "EXPIRY IAID ADDRESS NAME DUID" for IPv6.
    """
    for line in text.splitlines():
        words = line.split()
        if len(words) < 5:
            continue
        try:
            address = str(ipaddress.ip_address(words[2]))
        except ValueError:
            continue
        yield Lease(network=network, address=address, mac="" if ":" in address else words[1].lower())
