# SPDX-License-Identifier: Apache-2.0
"""Guests behind masquerade on a real node: leases, names, the world outside, forwarded ports, and many."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

import pytest
from agent_world import client, eventually, leftovers, running, until_gone
from feature_guests import shell
from network_guests import (
    GET,
    NAME,
    OUTSIDE,
    OUTSIDE6,
    addresses,
    left_on,
    masqueraded,
    outside,
    say,
    wait_lease,
    whoami,
)

from launcher.errors import CommandFailed
from launcher.lab.image import Image
from launcher.lab.lab import Lab
from launcher.lab.node import Node

pytestmark = pytest.mark.node


@pytest.fixture(scope="module")
def node(lab_with_agents: Lab) -> Iterator[Node]:
    """A node with an agent, and a world outside of it."""
    with outside(lab_with_agents):
        yield lab_with_agents.node("a")


def test_a_guest_gets_its_lease_and_reaches_the_world(node: Node, guest_image: Image) -> None:
    manifest = masqueraded(
        guest_image, "web", ports=(80,), dnsPolicy="None", dnsConfig={"nameservers": [OUTSIDE]}
    )
    with client(node) as agent:
        agent.instances.create(manifest)
        vmi = running(agent, "web")
        v4, v6 = addresses(vmi)
        with shell(agent, "web") as guest:
            wait_lease(guest)
            assert "default via 10.0.2.1" in guest.run("ip route")
            assert guest.run("hostname") == "web"
            assert OUTSIDE in guest.run(f"nslookup {NAME}")
            assert guest.run(whoami(OUTSIDE)) == node.ip
            eventually(
                "a default route by advertisement",
                lambda: "default via fe80::ff:fe00:0" in guest.run("ip -6 route"),
            )
            assert guest.run("ip addr add fd10:0:2::2/120 dev eth0") == ""
            eventually("nobody else's address", lambda: "tentative" not in guest.run("ip -6 addr show eth0"))
            assert guest.run(whoami(OUTSIDE6)) == "fd99::1"
            guest.run("mkdir -p /www; echo hello >/www/index.html; httpd -p 80 -h /www; httpd -p 81 -h /www")
            for address in (v4, v6):
                assert say(node, address, 80, GET).endswith("hello")
                with pytest.raises(CommandFailed, match=r"refused|reset"):
                    say(node, address, 81, GET)
        agent.instances.delete("web", namespace="default")
        until_gone(agent, "web")
    assert left_on(node) == []
    assert leftovers(node) == []


def test_what_a_guest_says_in_anothers_name_is_dropped(node: Node, guest_image: Image) -> None:
    with client(node) as agent:
        agent.instances.create(masqueraded(guest_image, "liar"))
        running(agent, "liar")
        with shell(agent, "liar") as guest:
            wait_lease(guest)
            assert guest.run(whoami(OUTSIDE)) == node.ip
            guest.run("ip addr add 10.0.2.9/24 dev eth0; ip route replace default via 10.0.2.1 src 10.0.2.9")
            assert guest.run(whoami(OUTSIDE)) == "", "another IPv4 address"
            guest.run("ip route replace default via 10.0.2.1 src 10.0.2.2")
            assert guest.run(whoami(OUTSIDE)) == node.ip
            assert guest.run("ip addr add fd10:0:2::9/120 dev eth0") == ""
            eventually("nobody else's address", lambda: "tentative" not in guest.run("ip -6 addr show eth0"))
            assert guest.run(whoami(OUTSIDE6)) == "", "another IPv6 address"
            guest.run(
                "ip link set eth0 down; ip link set eth0 address 02:00:00:00:00:99; ip link set eth0 up"
            )
            guest.run("ip addr replace 10.0.2.2/24 dev eth0; ip route replace default via 10.0.2.1")
            assert guest.run(whoami(OUTSIDE)) == "", "another MAC address"
        agent.instances.delete("liar", namespace="default")
        until_gone(agent, "liar")


def test_ten_guests_have_the_same_address_at_once(node: Node, guest_image: Image) -> None:
    names = [f"many{n}" for n in range(10)]
    with client(node) as agent:
        for name in names:
            agent.instances.create(masqueraded(guest_image, name, ports=(80,)))
        outer = [addresses(running(agent, name))[0] for name in names]
        assert len({ipaddress.ip_address(address) for address in outer}) == 10
        for name, address in zip(names, outer, strict=True):
            with shell(agent, name) as guest:
                wait_lease(guest)
                assert guest.run(whoami(OUTSIDE)) == node.ip
                guest.run(f"mkdir -p /www; echo I am {name} >/www/index.html; httpd -p 80 -h /www")
            assert say(node, address, 80, GET).endswith(f"I am {name}")
        for name in names:
            agent.instances.delete(name, namespace="default")
        for name in names:
            until_gone(agent, name)
    assert left_on(node) == []
