# SPDX-License-Identifier: Apache-2.0
"""A guest's address server and its network outlive the agent; what dies is started again."""

from __future__ import annotations

import signal

import pytest
from agent_world import client, condition, eventually, running, ticker, until, until_gone
from feature_guests import shell
from network_guests import GET, addresses, left_on, masqueraded, say, wait_lease

from launcher.errors import CommandFailed
from launcher.lab.image import Image
from launcher.lab.lab import Lab
from launcher.lab.node import Node

pytestmark = pytest.mark.node


def server(node: Node) -> str:
    """The process id of the node's one dnsmasq, numbered as inside; empty when none runs.

    While it starts it has a parent, which waits to hear that it serves.
    """
    lines = [line.split(None, 2) for line in node.run("ps", "-e", "-o", "pid,ppid,args").splitlines()]
    found = [
        pid
        for pid, parent, words in lines
        if parent == "1" and words.startswith("dnsmasq --conf-file=/run/launcher/n/")
    ]
    assert len(found) < 2
    return found[0] if found else ""


def test_servers_are_adopted_and_started_again(lab_with_agents: Lab, guest_image: Image) -> None:
    node = lab_with_agents.node("a")
    with client(node) as agent:
        agent.instances.create(masqueraded(guest_image, "kept", ports=(80,)))
        address, _ = addresses(running(agent, "kept"))
        with shell(agent, "kept") as guest:
            wait_lease(guest)
            guest.run("mkdir -p /www; echo on air >/www/index.html; httpd -p 80 -h /www")
    first = server(node)
    assert first

    node.stop_agent(signal.SIGKILL)
    assert say(node, address, 80, GET).endswith("on air")
    assert server(node) == first
    node.start_agent()
    with client(node) as agent:
        running(agent, "kept")
        assert server(node) == first, "adopted, not started again"

        node.run("kill", "-KILL", first)
        eventually("another server", lambda: server(node) not in ("", first))
        second = server(node)
        with shell(agent, "kept", up=True) as guest:
            guest.run("ip -4 addr flush dev eth0; killall udhcpc; udhcpc -i eth0 -s /etc/udhcpc -n -q -t 20")
            wait_lease(guest)

    node.stop_agent(signal.SIGKILL)
    node.run("kill", "-KILL", second)
    assert say(node, address, 80, GET).endswith("on air")
    node.start_agent()
    with client(node) as agent:
        eventually("a third server", lambda: server(node) not in ("", first, second))
        assert say(node, address, 80, GET).endswith("on air")
        agent.instances.delete("kept", namespace="default")
        until_gone(agent, "kept")
    assert server(node) == ""
    assert left_on(node) == []


def test_an_agent_that_was_killed_while_it_deletes_leaves_no_network(
    lab_with_agents: Lab, bootsector_image: Image
) -> None:
    node = lab_with_agents.node("a")
    with client(node) as agent:
        agent.instances.create(ticker(bootsector_image, "lost"))
        running(agent, "lost")
        assert server(node)
        agent.instances.delete("lost", namespace="default")
        node.stop_agent(signal.SIGKILL)
    node.start_agent()
    with client(node) as agent:
        until_gone(agent, "lost")
    eventually("nothing of it", lambda: left_on(node) == [])


def test_links_that_somebody_removes_are_made_again(lab_with_agents: Lab, guest_image: Image) -> None:
    node = lab_with_agents.node("a")
    with client(node) as agent:
        uid = agent.instances.create(masqueraded(guest_image, "robbed", ports=(80,)))["metadata"]["uid"]
        address, _ = addresses(running(agent, "robbed"))
        with shell(agent, "robbed") as guest:
            wait_lease(guest)
            guest.run("mkdir -p /www; echo on air >/www/index.html; httpd -p 80 -h /www")
        (tap,) = (name for name in left_on(node) if name.startswith("lt"))
        first = server(node)
        place = f"/run/launcher/n/{uid}/ns"
        for harm in (
            ("ip", "link", "del", tap.replace("lt", "lw", 1)),
            ("ip", "link", "del", tap.replace("lt", "lu", 1)),
            ("sh", "-c", f"umount {place}; rm {place}"),
        ):
            node.run(*harm)
            restart(node)
            eventually("the guest is reached", lambda: answers(node, address), timeout_s=60)
        assert server(node) not in ("", first)
        with shell(agent, "robbed", up=True) as guest:
            guest.run("ip -4 addr flush dev eth0; killall udhcpc; udhcpc -i eth0 -s /etc/udhcpc -n -q -t 20")
            wait_lease(guest)
        node.run("ip", "link", "del", tap)
        restart(node)
        told = until(agent, "robbed", lambda vmi: condition(vmi, "NetworkConnected"))
        assert tap in (condition(told, "NetworkConnected") or {})["message"]
        agent.instances.delete("robbed", namespace="default")
        until_gone(agent, "robbed")
    assert left_on(node) == []


def restart(node: Node) -> None:
    """An agent looks at all links when it starts; else only now and then."""
    node.stop_agent(signal.SIGKILL)
    node.start_agent()


def answers(node: Node, address: str) -> bool:
    """Whether the guest answers on its forwarded port."""
    try:
        return say(node, address, 80, GET).endswith("on air")
    except CommandFailed:
        return False
