# SPDX-License-Identifier: Apache-2.0
"""Interfaces of guests that run: links pulled and plugged in, a second interface that comes and goes."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator

import pytest
from agent_world import client, condition, eventually, running, until, until_gone
from feature_guests import Object, shell
from network_guests import GET, OUTSIDE, addresses, left_on, masqueraded, outside, say, wait_lease, whoami

from launcher.cli.client import Client
from launcher.errors import HostUnsupported, InvalidSpec
from launcher.lab.image import Image
from launcher.lab.lab import Lab
from launcher.lab.node import Node

pytestmark = pytest.mark.node


@pytest.fixture(scope="module")
def node(lab_with_agents: Lab) -> Iterator[Node]:
    """A node with an agent, and a world outside of it."""
    with outside(lab_with_agents):
        yield lab_with_agents.node("a")


def change(agent: Client, name: str, edit: Callable[[Object], None]) -> Object:
    """Get the instance, edit its spec, hand it back."""
    vmi = agent.instances.get(name, namespace="default")
    edit(vmi["spec"])
    return agent.instances.update(vmi)


def set_state(name: str, state: str) -> Callable[[Object], None]:
    """Sets the state of an interface."""

    def edit(spec: Object) -> None:
        next(nic for nic in spec["domain"]["devices"]["interfaces"] if nic["name"] == name)["state"] = state

    return edit


def add_lan(spec: Object) -> None:
    """A second interface on the network that all nodes share."""
    spec["domain"]["devices"]["interfaces"].append({"name": "lan", "bridge": {}})
    spec["networks"].append({"name": "lan", "multus": {"networkName": "lab"}})


def remove_lan(spec: Object) -> None:
    """Without the second interface."""
    devices = spec["domain"]["devices"]
    devices["interfaces"] = [nic for nic in devices["interfaces"] if nic["name"] != "lan"]
    spec["networks"] = [network for network in spec["networks"] if network["name"] != "lan"]


def link(vmi: Object, name: str) -> str | None:
    """The link of an interface that the domain has."""
    found = [nic for nic in vmi["status"]["interfaces"] if nic["name"] == name and nic.get("infoSource")]
    return found[0]["linkState"] if found else None


def settled(vmi: Object) -> bool:
    """Whether nothing is under way."""
    return condition(vmi, "HotInterfaceChange") is None


def test_a_link_goes_down_and_up(node: Node, guest_image: Image) -> None:
    with client(node) as agent:
        agent.instances.create(masqueraded(guest_image, "cable"))
        address, _ = addresses(running(agent, "cable"))
        with shell(agent, "cable") as guest:
            wait_lease(guest)
            guest.run("mkdir -p /www; echo on air >/www/index.html; httpd -p 80 -h /www")
            assert say(node, address, 80, GET).endswith("on air")
            change(agent, "cable", set_state("default", "down"))
            until(agent, "cable", lambda vmi: link(vmi, "default") == "down")
            eventually("no carrier", lambda: guest.run("cat /sys/class/net/eth0/carrier") == "0")
            assert guest.run(whoami(OUTSIDE)) == ""
            change(agent, "cable", set_state("default", "up"))
            until(agent, "cable", lambda vmi: link(vmi, "default") == "up" and settled(vmi))
            eventually("a carrier", lambda: guest.run("cat /sys/class/net/eth0/carrier") == "1")
            assert say(node, address, 80, GET).endswith("on air")
        agent.instances.delete("cable", namespace="default")
        until_gone(agent, "cable")
    assert left_on(node) == []


def test_an_interface_comes_and_goes(node: Node, guest_image: Image) -> None:
    with client(node) as agent:
        agent.instances.create(masqueraded(guest_image, "two"))
        running(agent, "two")
        with shell(agent, "two") as guest:
            wait_lease(guest)
            change(agent, "two", add_lan)
            vmi = until(agent, "two", lambda vmi: link(vmi, "lan") == "up" and settled(vmi))
            mac = vmi["status"]["interfaces"][1]["mac"]
            eventually("eth1 with its MAC address", lambda: mac in guest.run("ip link show eth1"))
            guest.run("ip addr add 10.99.0.31/24 dev eth1; ip link set eth1 up")
            eventually("the world by eth1", lambda: guest.run(whoami(OUTSIDE)) == "10.99.0.31")

            node.stop_agent(signal.SIGKILL)
        node.start_agent()
    with client(node) as agent:
        running(agent, "two")
        change(agent, "two", set_state("lan", "absent"))
        until(agent, "two", lambda vmi: link(vmi, "lan") is None and settled(vmi))
        with shell(agent, "two", up=True) as guest:
            assert "can't find device" in guest.run("ip link show eth1")
        links = [line for line in node.run("ip", "-br", "link").splitlines() if line.startswith("lt")]
        assert len(links) == 1
        change(agent, "two", remove_lan)
        change(agent, "two", add_lan)
        until(agent, "two", lambda vmi: link(vmi, "lan") == "up" and settled(vmi))
        agent.instances.delete("two", namespace="default")
        until_gone(agent, "two")
    assert left_on(node) == []


def test_what_cannot_be_plugged_is_refused_by_name(node: Node, guest_image: Image) -> None:
    with client(node) as agent:
        agent.instances.create(masqueraded(guest_image, "firm"))
        before = running(agent, "firm")["spec"]

        def unknown(spec: Object) -> None:
            add_lan(spec)
            spec["networks"][1]["multus"]["networkName"] = "nowhere"

        def model(spec: Object) -> None:
            spec["domain"]["devices"]["interfaces"][0]["macAddress"] = "02:00:00:00:00:77"

        def function(spec: Object) -> None:
            add_lan(spec)
            spec["domain"]["devices"]["interfaces"][1] = {"name": "lan", "sriov": {}}

        with pytest.raises(HostUnsupported, match="nowhere"):
            change(agent, "firm", unknown)
        with pytest.raises(InvalidSpec, match=r"interfaces\[0\]\.macAddress"):
            change(agent, "firm", model)
        with pytest.raises(InvalidSpec, match="only a bridge"):
            change(agent, "firm", function)
        assert agent.instances.get("firm", namespace="default")["spec"] == before
        agent.instances.delete("firm", namespace="default")
        until_gone(agent, "firm")
    assert left_on(node) == []
