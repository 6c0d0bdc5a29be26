# SPDX-License-Identifier: Apache-2.0
"""Guests on links that somebody made in a namespace of theirs, as under a CNI plugin: behind one, and in the
place of another; and the namespace is afterwards as it was."""

from __future__ import annotations

import json
import signal

import pytest
from agent_world import client, eventually, running, until_gone
from feature_guests import Object, shell
from network_guests import GET, addresses, left_on, networked, say, wait_lease
from pod_namespace import ADDRESS, ADDRESS6, POD, SECOND, SECOND_NODE, pod_namespace, shown

from launcher.errors import Conflict, InvalidRequest, NetworkError
from launcher.lab.image import Image
from launcher.lab.lab import Lab
from launcher.v1.types_pb2 import Companions, NetworkAttachment

pytestmark = pytest.mark.node


def test_a_guest_behind_one_link_and_in_the_place_of_another(
    lab_with_agents: Lab, guest_image: Image
) -> None:
    node = lab_with_agents.node("a")
    nics: dict[str, Object] = {"default": {"masquerade": {}, "ports": [{"port": 80}]}, "net1": {"bridge": {}}}
    networks: dict[str, Object] = {
        "default": {"pod": {}},
        "net1": {"multus": {"networkName": "not-configured"}},
    }
    links = {"default": "eth0", "net1": "net1"}
    companions = Companions(
        attachments={name: NetworkAttachment(namespace=POD, interface=link) for name, link in links.items()}
    )
    with pod_namespace(node), client(node) as agent:
        before = shown(node)
        mac = node.run("ip", "netns", "exec", "pod", "cat", "/sys/class/net/net1/address").strip()
        manifest = networked(guest_image, "given", nics, networks)
        manifest["spec"]["domain"]["cpu"] = {"cores": 2}
        manifest["spec"]["domain"]["devices"]["networkInterfaceMultiqueue"] = True
        agent.instances.create(manifest, companions)
        vmi = running(agent, "given")
        assert addresses(vmi) == [ADDRESS, ADDRESS6]
        with pytest.raises(Conflict, match="default/given is on"):
            agent.instances.create(networked(guest_image, "thief", nics, networks), companions)
        assert vmi["status"]["interfaces"][1]["mac"] == mac
        for nic in vmi["status"]["interfaces"]:
            tap = json.loads(node.run("ip", "-j", "-d", "link", "show", nic["podInterfaceName"]))[0]
            queues = tap["linkinfo"]["info_data"]
            # The second one is enabled by the guest's driver.
            assert queues["numqueues"] + queues["numdisabled"] == nic["queueCount"] == 2
        with shell(agent, "given") as guest:
            wait_lease(guest)
            assert guest.run("ls -d /sys/class/net/eth0/queues/rx-*").split()[-1].endswith("rx-1")
            guest.run("mkdir -p /www; echo in a pod >/www/index.html; httpd -p 80 -h /www")
            guest.run("ip addr add fd10:0:2::2/120 dev eth0")
            eventually("nobody else's address", lambda: "tentative" not in guest.run("ip -6 addr show eth0"))
            for address in (ADDRESS, ADDRESS6):
                assert say(node, address, 80, GET).endswith("in a pod")
            assert "1400" in guest.run("cat /sys/class/net/eth0/mtu")
            guest.run("ip link set eth1 up; udhcpc -i eth1 -s /etc/udhcpc -n -q -t 20")
            assert f"{SECOND}/24" in guest.run("ip addr show eth1")
            assert "1 packets received" in guest.run(f"ping -c 1 -W 5 {SECOND_NODE}")
            # The agent that comes after looks after the same servers.
            servers = node.run("pgrep", "-x", "dnsmasq").split()
            assert len(servers) == 2
            node.stop_agent(signal.SIGKILL)
            node.run("kill", *servers)
            assert say(node, SECOND, 80, GET).endswith("in a pod")
            node.start_agent()
            eventually("new servers", lambda: len(node.run("pgrep", "-x", "dnsmasq").split()) == 2)
        with client(node) as later:
            running(later, "given")
            conditions = later.instances.get("given", namespace="default")["status"]["conditions"]
            assert any(c.get("reason") == "InterfaceNotLiveMigratable" for c in conditions)
            later.instances.delete("given", namespace="default")
            until_gone(later, "given")
        assert shown(node) == before
    assert left_on(node) == []


def test_links_that_are_not_there_are_refused_with_their_names(
    lab_with_agents: Lab, guest_image: Image
) -> None:
    node = lab_with_agents.node("a")
    manifest = networked(guest_image, "wrong", {"default": {"bridge": {}}}, {"default": {"pod": {}}})
    with client(node) as agent:
        for network, link, kind, told in (
            ("default", "eth0", NetworkError, "no network namespace at /run/netns/nowhere"),
            ("other", "eth0", InvalidRequest, r"companions.attachments\[other\]"),
            ("default", "", InvalidRequest, r"attachments\[default\].interface"),
        ):
            given = NetworkAttachment(namespace="/run/netns/nowhere", interface=link)
            with pytest.raises(kind, match=told):
                agent.instances.create(manifest, Companions(attachments={network: given}))
