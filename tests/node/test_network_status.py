# SPDX-License-Identifier: Apache-2.0
"""What the status of real guests tells of their interfaces: by agent, by lease, by the node's neighbours."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from agent_world import client, running, until, until_gone
from feature_guests import Object, shell
from network_guests import GET, OUTSIDE, bridged, left_on, masqueraded, outside, say, wait_lease, whoami

from launcher.cli.client import Client
from launcher.lab.image import Image
from launcher.lab.lab import Lab
from launcher.lab.node import Node
from launcher.v1 import instances_pb2

pytestmark = pytest.mark.node

ADDRESS = "10.99.0.41"
# Answers a question for interfaces with the file's text, any other with the id of the question.
_AGENT = (
    "(exec 3<>/dev/virtio-ports/org.qemu.guest_agent.0; while :; do while read -r line <&3; do "
    'case $line in *get-interfaces*) echo "{\\"return\\": $(cat /tmp/told)}" >&3 ;; '
    '*) id=$(echo "$line" | sed -n \'s/.*"id": *\\([0-9]*\\).*/\\1/p\'); '
    'echo "{\\"return\\": ${id:-{\\}}}" >&3 ;; esac; done; sleep 0.2; done) & echo $! >/tmp/agent'
)


@pytest.fixture(scope="module")
def node(lab_with_agents: Lab) -> Iterator[Node]:
    """A node with an agent, and a world outside of it."""
    with outside(lab_with_agents):
        yield lab_with_agents.node("a")


def nic(vmi: Object, name: str) -> Object:
    """What is shown of an interface."""
    return next((one for one in vmi["status"]["interfaces"] if one.get("name") == name), {})


def sources(vmi: Object, name: str) -> list[str]:
    """Who told of it."""
    return str(nic(vmi, name).get("infoSource", "")).split(", ")


def traffic(agent: Client, name: str) -> dict[str, instances_pb2.InterfaceTraffic]:
    """The counters of each interface."""
    return {one.interface: one for one in agent.instances.traffic(name, namespace="default")}


def test_a_bridged_guest_is_known_by_the_neighbour_table(node: Node, guest_image: Image) -> None:
    manifest = bridged(guest_image, "neighbour")
    boot = manifest["spec"]["domain"]["firmware"]["kernelBoot"]
    boot["kernelArgs"] = boot["kernelArgs"].replace("net=dhcp", f"net={ADDRESS}/24")
    with client(node) as agent:
        agent.instances.create(manifest)
        assert sources(running(agent, "neighbour"), "lan") == ["domain"]
        with shell(agent, "neighbour") as guest:
            guest.run("mkdir -p /www; echo hello >/www/index.html; httpd -p 80 -h /www")
            assert guest.run(whoami(OUTSIDE)) == ADDRESS
            assert say(node, ADDRESS, 80, GET).endswith("hello")
        vmi = until(agent, "neighbour", lambda vmi: "neighbour" in sources(vmi, "lan"))
        shown = nic(vmi, "lan")
        assert (shown["ipAddress"], shown["ipAddresses"]) == (ADDRESS, [ADDRESS])
        assert (shown["linkState"], shown["queueCount"]) == ("up", 1)
        assert shown["podInterfaceName"] in node.run("ip", "-br", "link")
        first = traffic(agent, "neighbour")["lan"]
        assert first.rx_packets > 0
        # So it is reached through the agent, too.
        stream = iter(agent.streams.port_forward("neighbour", 80, [GET.encode()]))
        assert b"".join(data or b"" for data in stream).endswith(b"hello\n")
        with shell(agent, "neighbour", up=True) as guest:
            guest.run("dd if=/dev/zero of=/www/large bs=1M count=2")
        large = iter(agent.streams.port_forward("neighbour", 80, [b"GET /large HTTP/1.0\r\n\r\n"]))
        assert sum(len(data or b"") for data in large) > 2 << 20
        after = traffic(agent, "neighbour")["lan"]
        assert after.tx_bytes - first.tx_bytes > 2 << 20, "as the guest sees it"
        assert 0 < after.rx_bytes - first.rx_bytes < 1 << 20
        agent.instances.delete("neighbour", namespace="default")
        until_gone(agent, "neighbour")
    assert left_on(node) == []


def test_a_guests_agent_and_its_lease_tell(node: Node, guest_image: Image) -> None:
    with client(node) as agent:
        agent.instances.create(masqueraded(guest_image, "told"))
        running(agent, "told")
        with shell(agent, "told") as guest:
            wait_lease(guest)
            vmi = until(agent, "told", lambda vmi: "lease" in sources(vmi, "default"))
            outer = nic(vmi, "default")["ipAddresses"]
            told = [
                {"name": "lo", "ip-addresses": [{"ip-address": "127.0.0.1"}]},
                {
                    "name": "eth0",
                    "hardware-address": nic(vmi, "default")["mac"],
                    "ip-addresses": [{"ip-address": "10.0.2.2", "ip-address-type": "ipv4", "prefix": 24}],
                },
                {
                    "name": "docker0",
                    "hardware-address": "02:42:00:00:00:01",
                    "ip-addresses": [{"ip-address": "172.17.0.1"}, {"ip-address": "fe80::42"}],
                },
            ]
            guest.run(f"echo '{json.dumps(told)}' >/tmp/told")
            guest.run(_AGENT)
            vmi = until(agent, "told", lambda vmi: "guest-agent" in sources(vmi, "default"))
            shown, inner = vmi["status"]["interfaces"]
            assert shown["infoSource"] == "domain, guest-agent, lease"
            assert (shown["interfaceName"], shown["ipAddresses"]) == ("eth0", outer)
            assert inner == {
                "interfaceName": "docker0",
                "mac": "02:42:00:00:00:01",
                "ipAddress": "172.17.0.1",
                "ipAddresses": ["172.17.0.1"],
                "infoSource": "guest-agent",
            }
            guest.run("kill $(cat /tmp/agent)")
            until(agent, "told", lambda vmi: sources(vmi, "default") == ["domain", "lease"])
        agent.instances.delete("told", namespace="default")
        until_gone(agent, "told")
    assert left_on(node) == []
