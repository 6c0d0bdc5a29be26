# SPDX-License-Identifier: Apache-2.0
"""Looks at a link that somebody made for an interface and handed in, in a namespace of theirs. Blocking."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace
from pyroute2 import IPRoute

from launcher.errors import NetworkError
from launcher.network import link
from launcher.network.forwarding import passed_on
from launcher.network.function import look_at_function
from launcher.network.namespace import inside
from launcher.plan.allocations import Attachment, Route

LINK_SCOPE: Final = 253
MAIN: Final = 254
UNICAST: Final = 1
MADE_BY_KERNEL: Final = 2
"""Linux, include/uapi/linux/rtnetlink.h: RT_SCOPE_LINK, RT_TABLE_MAIN, RTN_UNICAST, RTPROT_KERNEL."""


def look_at(network: str, given: Attachment) -> Attachment:
    """``given`` with what nobody said of it as the link has it.

    Raises:
        NetworkError: there is no such namespace, no such link in it, or no such virtual function.
    """
    if given.device:
        return replace(given, function=look_at_function(network, given.device))
    return inside(Path(given.namespace), lambda: _found(network, given))


def _found(network: str, given: Attachment) -> Attachment:
    with link.netlink(network, f"cannot look at {given.interface} in {given.namespace}") as ip:
        index = link.index_of(ip, given.interface)
        if index is None:
            raise NetworkError(network, f"there is no link {given.interface} in {given.namespace}")
        there = ip.get_links(index)[0]
        addresses = given.addresses or tuple(_addresses(ip, index))
        routes = given.routes if given.addresses or given.routes else tuple(_routes(ip, index))
    return replace(
        given,
        mac=given.mac or str(there.get_attr("IFLA_ADDRESS") or ""),
        mtu=given.mtu or int(there.get_attr("IFLA_MTU") or 0),
        addresses=addresses,
        routes=routes,
        forwards=passed_on(),
    )


def _addresses(ip: IPRoute, index: int) -> list[str]:
    return [
        f"{one.get_attr('IFA_LOCAL') or one.get_attr('IFA_ADDRESS')}/{one['prefixlen']}"
        for one in ip.get_addr(index=index)
        if one["scope"] < LINK_SCOPE
    ]


def _routes(ip: IPRoute, index: int) -> list[Route]:
    """What leads out of the link: those that follow from addresses left out, the default route last."""
    found = []
    for family, anywhere in ((socket.AF_INET, "0.0.0.0/0"), (socket.AF_INET6, "::/0")):
        for one in ip.get_routes(family=family, table=MAIN):
            if one.get_attr("RTA_OIF") != index or one["type"] != UNICAST or one["proto"] == MADE_BY_KERNEL:
                continue
            found.append(Route(destination=_destination(one, anywhere), gateway=_gateway(one)))
    return sorted(found, key=lambda route: route.destination.endswith("/0"))


def _destination(one: Any, anywhere: str) -> str:
    to = one.get_attr("RTA_DST")
    return f"{to}/{one['dst_len']}" if to else anywhere


def _gateway(one: Any) -> str:
    return str(one.get_attr("RTA_GATEWAY") or "")
