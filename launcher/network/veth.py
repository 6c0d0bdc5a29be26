# SPDX-License-Identifier: Apache-2.0
"""Pairs of links between libvirt's network namespace and an instance's. Blocking; call it in a thread."""

from __future__ import annotations

import ipaddress
import os
import socket
from pathlib import Path

from pyroute2 import IPRoute

from launcher.errors import NetworkError
from launcher.network import link
from launcher.network.namespace import inside, set_sysctl
from launcher.plan.steps import CreateVeth

KIND = "veth"
_NODAD = 0x02
_ONLINK = 0x04
"""Linux: IFA_F_NODAD of if_addr.h (nobody else has the address), RTNH_F_ONLINK of rtnetlink.h."""


def create_veth(step: CreateVeth) -> None:
    """Make the pair with its addresses and routes; what exists already is brought to that state.

    Raises:
        NetworkError: a foreign link has a name, or an address is refused.
        HostUnsupported: the agent may not, or the kernel cannot.
    """
    namespace = Path(step.namespace)
    with link.netlink(step.network, f"the link {step.name} cannot be made") as ip:
        index = link.index_of(ip, step.name)
        if index is not None:
            link.require_ours(ip, index, network=step.network, name=step.name, owner=step.owner, kind=KIND)
            if not inside(namespace, lambda: _exists(step.peer)):
                ip.link("del", index=index)  # its namespace was another one
                index = None
        if index is None:
            index = _add(ip, step, namespace)
        ip.link("set", index=index, ifalias=f"{link.ALIAS_PREFIX}{step.owner}")
        if _has_ipv6():
            _quieten(step.name, silent=not step.addresses)
        ip.link("set", index=index, state="up")
    inside(namespace, lambda: _configure_peer(step))
    with link.netlink(step.network, f"the link {step.name} cannot be configured") as ip:
        _address(ip, index, step.addresses)
        for route in step.routes:
            ip.route("replace", dst=route, oif=index, family=_family(route))


def delete_veth(step: CreateVeth) -> None:
    """Remove the pair if it is there and ours."""
    link.delete(step.network, step.name, step.owner, KIND)


def _add(ip: IPRoute, step: CreateVeth, namespace: Path) -> int:
    descriptor = os.open(namespace, os.O_RDONLY | os.O_CLOEXEC)
    try:
        peer: dict[str, object] = {"ifname": step.peer, "net_ns_fd": descriptor}
        if step.peer_mac is not None:
            peer["address"] = step.peer_mac
        ip.link("add", ifname=step.name, kind="veth", peer=peer)
    finally:
        os.close(descriptor)
    index = link.index_of(ip, step.name)
    if index is None:
        raise NetworkError(step.network, f"the link {step.name} vanished right after it was made")
    if step.mtu is not None:
        ip.link("set", index=index, mtu=step.mtu)
    return index


def _configure_peer(step: CreateVeth) -> None:
    if _has_ipv6():
        _quieten(step.peer, silent=not any(":" in address for address in step.peer_addresses))
    with link.netlink(step.network, f"{step.peer} cannot be configured") as ip:
        index = link.index_of(ip, step.peer)
        if index is None:
            raise NetworkError(step.network, f"the link {step.peer} vanished")
        if step.mtu is not None:
            ip.link("set", index=index, mtu=step.mtu)
        ip.link("set", index=index, state="up")
        _address(ip, index, step.peer_addresses)
        for gateway in step.gateways:
            ip.route(
                "replace",
                dst="default" if ":" not in gateway else "::/0",
                gateway=gateway,
                oif=index,
                flags=_ONLINK,
                family=_family(gateway),
            )


def _address(ip: IPRoute, index: int, addresses: tuple[str, ...]) -> None:
    for text in addresses:
        one = ipaddress.ip_interface(text)
        family = _family(text)
        flags = {"flags": _NODAD} if family == socket.AF_INET6 else {}
        ip.addr(
            "replace",
            index=index,
            address=str(one.ip),
            prefixlen=one.network.prefixlen,
            family=family,
            **flags,
        )


def _quieten(name: str, *, silent: bool) -> None:
    """No address of its own making but the link-local one, and no waiting for it; ``silent``: none at all."""
    if silent:
        set_sysctl(f"ipv6/conf/{name}/disable_ipv6", "1")
        return
    set_sysctl(f"ipv6/conf/{name}/disable_ipv6", "0")
    set_sysctl(f"ipv6/conf/{name}/accept_ra", "0")
    set_sysctl(f"ipv6/conf/{name}/accept_dad", "0")


def _exists(name: str) -> bool:
    with link.netlink("", f"cannot look for {name}") as ip:
        return link.index_of(ip, name) is not None


def _has_ipv6() -> bool:
    return Path("/proc/sys/net/ipv6").is_dir()


def _family(text: str) -> int:
    return socket.AF_INET6 if ":" in text else socket.AF_INET
