# SPDX-License-Identifier: Apache-2.0
"""A network namespace in a node as a CNI plugin leaves it: links with addresses and routes, on bridges."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from launcher.lab.node import Node

POD = "/run/netns/pod"
"""Where the namespace is."""
ADDRESS, ADDRESS6 = "10.244.7.5", "fd44::5"
"""Those of its ``eth0``; the node is .1 and ::1."""
MAC = "0a:58:0a:f4:00:05"
SECOND, SECOND_NODE, BEYOND = "10.245.0.9", "10.245.0.1", "10.250.0.0/16"
"""The address of its ``net1``, the node's on that bridge, and what is reached by it."""

MAKE = f"""
set -e
ip netns add pod
ip link add cni0 type bridge
ip link add cni1 type bridge
for n in 0 1; do
    ip link add hp$n mtu 1400 type veth peer name px$n netns pod mtu 1400
    ip link set hp$n master cni$n up
    ip link set cni$n up
done
ip link add bl0 type veth peer name bl1
ip link set bl0 up
ip addr add 10.244.7.1/24 dev cni0
ip addr add fd44::1/64 dev cni0 nodad
ip addr add {SECOND_NODE}/24 dev cni1
ip -n pod link set lo up
ip -n pod link set px0 name eth0 address {MAC}
ip -n pod link set px1 name net1 address 0a:58:0a:f5:00:09
ip -n pod link set eth0 up
ip -n pod link set net1 up
ip -n pod addr add {ADDRESS}/24 dev eth0
ip -n pod addr add {ADDRESS6}/64 dev eth0 nodad
ip -n pod addr add {SECOND}/24 dev net1
ip -n pod route add default via 10.244.7.1
ip -n pod route add default via fd44::1
ip -n pod route add {BEYOND} via {SECOND_NODE}
"""
CLEAR = "ip netns del pod 2>/dev/null; ip link del cni0; ip link del cni1; ip link del bl0; true"
_SHOW = """
ip -n pod link | grep -v '^ ' | cut -d' ' -f2-5 | sed 's|@if[0-9]*||'
ip -n pod addr | grep -e inet -e ether | grep -v fe80
ip -n pod route; ip -n pod -6 route | grep -v fe80
ip netns exec pod tc qdisc; ip netns exec pod tc filter show dev eth0 ingress
ip netns exec pod nft list ruleset
ip netns exec pod sysctl net.ipv4.ip_forward net.ipv6.conf.all.forwarding
"""


@contextmanager
def pod_namespace(node: Node) -> Iterator[None]:
    """The namespace with its links; both are gone afterwards."""
    node.run("sh", "-c", MAKE)
    try:
        yield
    finally:
        node.run("sh", "-c", CLEAR)


def shown(node: Node) -> str:
    """All of the namespace that must be as it was when nobody uses it any more."""
    return node.run("sh", "-c", _SHOW)
