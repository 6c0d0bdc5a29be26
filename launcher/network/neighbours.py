# SPDX-License-Identifier: Apache-2.0
"""Who the node has heard of on its links: its neighbour tables of both families. Blocking; reads only."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

NUD_INCOMPLETE, NUD_STALE, NUD_FAILED, NUD_NOARP = 0x01, 0x04, 0x20, 0x40
"""States of a neighbour (Linux, include/uapi/linux/neighbour.h)."""
_NOBODY: Final = NUD_INCOMPLETE | NUD_FAILED | NUD_NOARP


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    """An address that a MAC address answers to. ``stale``: it was so, and ``age`` (in ticks of the kernel's)
    ago for the last time."""

    mac: str
    address: str
    stale: bool = False
    age: int = 0


def neighbours(macs: Collection[str]) -> tuple[Neighbour, ...]:
    """What the calling thread's network namespace knows of ``macs`` (in lower case).

    Raises:
        HostUnsupported, NetworkError: the kernel does not tell.
    """
    from launcher.network.link import netlink

    if not macs:
        return ()
    found = []
    with netlink("", "cannot list neighbours") as ip:
        for entry in ip.get_neighbours():
            mac = str(entry.get_attr("NDA_LLADDR") or "").lower()
            address = entry.get_attr("NDA_DST")
            if mac not in macs or not address or not entry["state"] or entry["state"] & _NOBODY:
                continue
            cache = entry.get_attr("NDA_CACHEINFO") or {}
            found.append(
                Neighbour(
                    mac=mac,
                    address=str(address),
                    stale=bool(entry["state"] & NUD_STALE),
                    age=int(cache.get("ndm_confirmed", 0)),
                )
            )
    return tuple(found)


def present(found: Iterable[Neighbour]) -> tuple[str, ...]:
    """The addresses that one MAC address has now, as far as ``found`` tells; IPv4 first. Pure.

    The kernel keeps what it once heard for long, and a guest may have another address since: of a family
    of which nobody was heard lately, it is the one that was heard last.
    """
    addresses: list[str] = []
    entries = sorted(found, key=lambda one: (one.age, one.address))
    for family in (4, 6):
        ours = [one for one in entries if (":" in one.address) == (family == 6)]
        fresh = [one.address for one in ours if not one.stale]
        addresses += fresh or [one.address for one in ours[:1]]
    return tuple(dict.fromkeys(addresses))
