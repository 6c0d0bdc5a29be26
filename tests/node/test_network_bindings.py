# SPDX-License-Identifier: Apache-2.0
"""Binding plugins of a node's configuration: a guest on a macvtap, and a program that edits the domain."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator

import pytest
from agent_world import client, eventually, running, until_gone
from feature_guests import Object, shell
from network_guests import left_on, networked

from launcher.errors import HostUnsupported
from launcher.lab.image import Image
from launcher.lab.lab import Lab
from launcher.lab.node import Node

pytestmark = pytest.mark.node

_PROGRAM = """#!/bin/sh
exec python3 -c '
import json, sys
given = json.load(sys.stdin)
word = given["interface"] + " of " + given["vmi"]["metadata"]["name"]
print(given["domain"].replace("</name>", "</name><title>edited for " + word + "</title>", 1))
'
"""
_WAYWARD = "#!/bin/sh\necho '<domain><name>other</name></domain>'\n"
_CONFIGURATION = """
[bindings.direct]
attachment = "macvtap"
link = "below0"
mode = "bridge"

[bindings.edited]
attachment = "tap"
program = ["/run/launcher/edit"]

[bindings.wayward]
program = ["/run/launcher/wayward"]
"""


@pytest.fixture(scope="module")
def node(lab_with_agents: Lab) -> Iterator[Node]:
    """A node with plugins, and a link with the address 10.77.0.1 at its other end."""
    node = lab_with_agents.node("a")
    for name, text in (("edit", _PROGRAM), ("wayward", _WAYWARD)):
        file = node.layout.outside(f"/run/launcher/{name}")
        file.write_text(text)
        file.chmod(file.stat().st_mode | stat.S_IXUSR)
    with node.layout.agent_config.open("a") as configuration:
        configuration.write(_CONFIGURATION)
    node.run("sh", "-c", "ip link add below0 type veth peer name above0; ip link set below0 up")
    node.run("sh", "-c", "ip addr add 10.77.0.1/24 dev above0; ip link set above0 up")
    node.stop_agent()
    node.start_agent()
    yield node
    node.run("ip", "link", "del", "below0")


def plugged(image: Image, name: str, *bindings: str) -> Object:
    """A guest with an interface on each of the plugins."""
    nics = {binding: {"binding": {"name": binding}} for binding in bindings}
    networks: dict[str, Object] = {name: {"multus": {"networkName": name}} for name in bindings}
    return networked(image, name, nics, networks)


def test_a_guest_on_a_macvtap_and_a_domain_that_a_program_edited(node: Node, guest_image: Image) -> None:
    manifest = plugged(guest_image, "direct", "direct", "edited")
    boot = manifest["spec"]["domain"]["firmware"]["kernelBoot"]
    boot["kernelArgs"] = boot["kernelArgs"].replace("net=dhcp", "net=10.77.0.2/24")
    with client(node) as agent:
        agent.instances.create(manifest)
        vmi = running(agent, "direct")
        assert "<title>edited for edited of direct</title>" in agent.instances.domain_xml(
            "direct", namespace="default"
        )
        (first, second) = vmi["status"]["interfaces"]
        link = json.loads(node.run("ip", "-j", "-d", "link", "show", first["podInterfaceName"]))[0]
        assert link["linkinfo"]["info_kind"] == "macvtap"
        assert link["address"] == first["mac"]
        assert "master" not in json.loads(node.run("ip", "-j", "link", "show", second["podInterfaceName"]))[0]
        reasons = {condition.get("reason") for condition in vmi["status"]["conditions"]}
        assert "InterfaceNotLiveMigratable" in reasons
        with shell(agent, "direct") as guest:
            eventually(
                "the network below",
                lambda: "1 packets received" in guest.run("ping -c 1 -W 2 10.77.0.1"),
            )
        agent.instances.delete("direct", namespace="default")
        until_gone(agent, "direct")
    assert left_on(node) == []


def test_a_program_may_not_make_it_another_domain(node: Node, guest_image: Image) -> None:
    with client(node) as agent:
        agent.instances.create(plugged(guest_image, "astray", "wayward"))

        def told() -> bool:
            conditions = agent.instances.get("astray", namespace="default")["status"]["conditions"]
            return any("must leave the domain's name as it is" in c.get("message", "") for c in conditions)

        eventually("the refusal", told)
        agent.instances.delete("astray", namespace="default")
        until_gone(agent, "astray")
        with pytest.raises(HostUnsupported, match="the network binding 'unknown'"):
            agent.instances.create(plugged(guest_image, "nobodys", "unknown"))
