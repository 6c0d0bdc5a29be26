# SPDX-License-Identifier: Apache-2.0
"""What the status shows of interfaces, from whoever knows something of them."""

from __future__ import annotations

import dataclasses

from agent_nodes import accepted, live, node, site
from msgspec.structs import replace

from launcher.agent.records import InstanceRecord
from launcher.agent.sighting import Sighting, interfaces
from launcher.guest.agent import GuestInterface
from launcher.network.leases import Lease
from launcher.plan.settings import BridgedNetwork, NetworkSettings

MANIFEST = """
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {name: web, namespace: lab, uid: uid-web}
spec:
  domain:
    memory: {guest: 1Gi}
    devices:
      interfaces: [{name: lan, bridge: {}, macAddress: "02:00:00:00:00:0A"}, {name: default, masquerade: {}}]
  networks: [{name: lan, multus: {networkName: blue}}, {name: default, pod: {}}]
"""
LAN = "02:00:00:00:00:0a"


def record() -> InstanceRecord:
    there = site(node())
    network = NetworkSettings(bridges={"blue": BridgedNetwork(bridge="br1")})
    return accepted(MANIFEST, dataclasses.replace(there, plan=replace(there.plan, network=network)))


def test_the_pod_network_is_first_and_the_domain_knows_links() -> None:
    made = record()
    first, second = interfaces(made, live(made))
    assert (first.name, second.name) == ("default", "lan")
    assert first.ip_addresses == made.allocations.outer
    assert first.ip_address == made.allocations.outer[0]
    assert (first.info_source, first.link_state, first.queue_count) == ("domain", "up", 1)
    assert first.pod_interface_name == made.allocations.taps["default"]
    assert (second.ip_address, second.ip_addresses, second.info_source) == (None, (), "domain")


def test_the_agent_knows_best() -> None:
    made = record()
    inside = made.plan.devices.interfaces[1].mac or ""
    seen = Sighting(
        guest=(
            GuestInterface(name="lo", addresses=("127.0.0.1",)),
            GuestInterface(name="eth0", mac=inside, addresses=("10.0.2.2", "fe80::1")),
            GuestInterface(name="eth1", mac=LAN, addresses=("192.0.2.7", "fe80::2", "2001:db8::7")),
            *(GuestInterface(name=f"veth{n}", mac=f"0a:00:00:00:00:{n:02x}") for n in range(12)),
        ),
        leases=(Lease(network="default", address="10.0.2.2", mac=inside),),
        neighbours={LAN: ("192.0.2.99",)},
    )
    first, second, *others = interfaces(made, live(made), seen)
    assert first.ip_addresses == made.allocations.outer, "where the node reaches it"
    assert (first.interface_name, first.info_source) == ("eth0", "domain, guest-agent, lease")
    assert second.ip_addresses == ("192.0.2.7", "2001:db8::7")
    assert (second.interface_name, second.info_source) == ("eth1", "domain, guest-agent, neighbour")
    assert [nic.interface_name for nic in others] == [f"veth{n}" for n in range(10)]
    assert {(nic.name, nic.info_source) for nic in others} == {(None, "guest-agent")}


def test_without_an_agent_leases_and_neighbours_do() -> None:
    made = record()
    seen = Sighting(
        leases=(Lease(network="lan", address="192.0.2.8", mac=LAN),),
        neighbours={LAN: ("192.0.2.8", "fe80::9", "2001:db8::8")},
    )
    _, second = interfaces(made, live(made), seen)
    assert second.ip_addresses == ("192.0.2.8", "2001:db8::8")
    assert (second.ip_address, second.info_source) == ("192.0.2.8", "domain, lease, neighbour")
    silent = replace_guest(seen, GuestInterface(name="eth1", mac=LAN))
    _, second = interfaces(made, live(made), silent)
    assert second.ip_address == "192.0.2.8"


def replace_guest(seen: Sighting, nic: GuestInterface) -> Sighting:
    return dataclasses.replace(seen, guest=(nic,))
