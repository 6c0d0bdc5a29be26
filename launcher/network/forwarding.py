# SPDX-License-Identifier: Apache-2.0
"""Whether a network namespace passes packets on. Blocking; it acts on the calling thread's namespace."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Final

from launcher.errors import HostUnsupported
from launcher.host.logging import get
from launcher.network import link
from launcher.network.namespace import set_sysctl

log = get(__name__)

SWITCHES: Final = {4: "ipv4/ip_forward", 6: "ipv6/conf/all/forwarding"}
LEARNED = 9
"""Linux, include/uapi/linux/rtnetlink.h: RTPROT_RA, a route that a router advertised."""


def forward_all() -> None:
    """An instance's namespace is a router for its guest.

    Raises:
        HostUnsupported: /proc/sys/net may not be written.
    """
    pass_on(frozenset({4, 6} if Path("/proc/sys/net/ipv6").is_dir() else {4}))
    with link.netlink("", "the loopback cannot be set up") as ip:
        loopback = link.index_of(ip, "lo")
        if loopback is not None:
            ip.link("set", index=loopback, state="up")


def pass_on(versions: frozenset[int], *, on: bool = True) -> None:
    """Whether packets of the IP ``versions`` are passed on here.

    Raises:
        HostUnsupported: /proc/sys/net may not be written.
    """
    for version in sorted(versions):
        set_sysctl(SWITCHES[version], "1" if on else "0")


def passed_on() -> tuple[int, ...]:
    """The IP versions that are passed on here."""
    return tuple(version for version in sorted(SWITCHES) if _is_on(Path("/proc/sys/net", SWITCHES[version])))


def _is_on(path: Path) -> bool:
    try:
        return path.read_text().strip() != "0"
    except OSError:
        return False


def forward_on_node(versions: frozenset[int]) -> None:
    """The node passes on what guests send beyond it, in the IP ``versions`` that they speak.

    IPv6 is left alone where the node itself lives on router advertisements: as a router it would ignore them.

    Raises:
        HostUnsupported: /proc/sys/net may not be written.
    """
    if 4 in versions:
        set_sysctl("ipv4/ip_forward", "1")
    if 6 not in versions or Path("/proc/sys/net/ipv6/conf/all/forwarding").read_text().strip() == "1":
        return
    links = sorted(_links_that_learn())
    if links:
        log.warning(
            "guests reach nothing beyond the node by IPv6: it learns its routes from advertisements",
            links=",".join(links),
            hint=f"set net.ipv6.conf.{links[0]}.accept_ra=2 and net.ipv6.conf.all.forwarding=1",
        )
        return
    set_sysctl("ipv6/conf/all/forwarding", "1")


def _links_that_learn() -> set[str]:
    with link.netlink("", "cannot list routes") as ip:
        learned = {
            route.get_attr("RTA_OIF")
            for route in ip.get_routes(family=socket.AF_INET6)
            if route["proto"] == LEARNED
        }
        names = {str(one.get_attr("IFLA_IFNAME")) for one in ip.get_links() if one["index"] in learned}
    return {name for name in names if _accepts(name)}


def _accepts(name: str) -> bool:
    try:
        return Path(f"/proc/sys/net/ipv6/conf/{name}/accept_ra").read_text().strip() == "1"
    except OSError as error:
        raise HostUnsupported("IPv6", f"{name}: {error.strerror}") from error
