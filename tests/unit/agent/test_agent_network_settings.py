# SPDX-License-Identifier: Apache-2.0
"""The configuration of networks: what is accepted, and which outer addresses are handed out."""

from __future__ import annotations

import pytest

from launcher.agent.ledger import Holding, Ledger, Limits
from launcher.agent.network_settings import network_settings
from launcher.errors import Exhausted, InvalidRequest
from launcher.host.config import Config, Network, NodeBinding, NodeNetwork
from launcher.plan.facts import NodeFacts
from launcher.plan.settings import Binding, FunctionNetwork, NetworkSettings

POOL = "192.0.2.0/29"


def ledger(*taken: str) -> Ledger:
    holdings = [Holding(key=f"default/{n}", outer=(address,)) for n, address in enumerate(taken)]
    return Ledger(NodeFacts(), Limits(), holdings)


def test_without_a_configuration_planning_has_its_own_defaults() -> None:
    assert network_settings(Config()) == NetworkSettings()


@pytest.mark.parametrize(
    ("network", "field"),
    [
        (Network(pool="x"), "network.pool"),
        (Network(pool="fd00::/64"), "network.pool"),
        (Network(pool="192.0.2.0/30"), "network.pool"),
        (Network(pool="192.0.2.1/24"), "network.pool"),
        (Network(pool6="192.0.2.0/24"), "network.pool6"),
        (Network(mtu=100), "network.mtu"),
        (Network(nameservers=("dns.example",)), "network.nameservers"),
        (Network(search=("a b",)), "network.search"),
        (Network(bridge="a/b"), "network.bridge"),
        (Network(node_ports="30000"), "network.node_ports"),
        (Network(node_ports="0-10"), "network.node_ports"),
        (Network(node_ports="30001-30000"), "network.node_ports"),
        (Network(node_ports="30000-65536"), "network.node_ports"),
    ],
)
def test_a_wrong_value_is_named(network: Network, field: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        network_settings(Config(network=network))
    assert [violation.field for violation in caught.value.violations] == [field]


def test_every_wrong_network_is_named() -> None:
    networks = {"a": NodeNetwork(bridge="a b", vlan=5000), "b": NodeNetwork(bridge="br0", mtu=1)}
    with pytest.raises(InvalidRequest) as caught:
        network_settings(Config(networks=networks))
    assert [v.field for v in caught.value.violations] == [
        "networks.a.bridge",
        "networks.a.vlan",
        "networks.b.mtu",
    ]


@pytest.mark.parametrize(
    ("network", "field"),
    [
        (NodeNetwork(), "networks.x.bridge"),
        (NodeNetwork(bridge="br0", card="ens1f0"), "networks.x.card"),
        (NodeNetwork(card="a/b"), "networks.x.card"),
        (NodeNetwork(card="ens1f0", guard=True), "networks.x"),
        (NodeNetwork(card="ens1f0", vlan=4095), "networks.x.vlan"),
    ],
)
def test_a_network_is_a_bridge_or_a_card(network: NodeNetwork, field: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        network_settings(Config(networks={"x": network}))
    assert [violation.field for violation in refused.value.violations] == [field]


def test_cards_are_no_bridges() -> None:
    settings = network_settings(Config(networks={"x": NodeNetwork(card="ens1f0", vlan=7)}))
    assert (settings.cards, settings.bridges) == ({"x": FunctionNetwork(link="ens1f0", vlan=7)}, {})


@pytest.mark.parametrize(
    ("binding", "field"),
    [
        (NodeBinding(), "bindings.x"),
        (NodeBinding(attachment="macvtap"), "bindings.x.link"),
        (NodeBinding(attachment="vhost-user", socket="run/x"), "bindings.x.socket"),
        (NodeBinding(program=("edit",)), "bindings.x.program"),
        (NodeBinding(attachment="tap", timeout_s=0), "bindings.x.timeout_s"),
    ],
)
def test_bindings_that_cannot_be_are_refused(binding: NodeBinding, field: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        network_settings(Config(bindings={"x": binding}))
    assert [violation.field for violation in refused.value.violations] == [field]


def test_bindings_are_what_the_configuration_says() -> None:
    binding = NodeBinding(attachment="macvtap", link="eth0", mode="vepa", migrate=True)
    assert network_settings(Config(bindings={"x": binding})).bindings == {
        "x": Binding(attachment="macvtap", link="eth0", mode="vepa", migrate=True)
    }


def test_an_address_is_the_same_each_time_and_nobody_elses() -> None:
    first = ledger().free_address("u", POOL)
    assert ledger().free_address("u", POOL) == first
    assert ledger(first).free_address("u", POOL) != first


def test_all_addresses_of_a_pool_but_three_can_be_had() -> None:
    taken: list[str] = []
    for _ in range(5):
        taken.append(ledger(*taken).free_address("u", POOL))
    assert sorted(taken) == [f"192.0.2.{n}" for n in range(2, 7)]
    with pytest.raises(Exhausted, match=r"192\.0\.2\.0/29"):
        ledger(*taken).free_address("u", POOL)


def test_a_pool_of_ipv6_may_be_vast() -> None:
    assert ledger().free_address("u", "fd00::/64").startswith("fd00::")
