# SPDX-License-Identifier: Apache-2.0
"""Ports of the node: which a guest gets, what others have, and where it shows."""

from __future__ import annotations

import dataclasses

import pytest
from agent_nodes import accepted, node, site
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from launcher.agent.conditions import conditions
from launcher.agent.draft import Site
from launcher.agent.ledger import Holding, Ledger, Limits, holding
from launcher.errors import Exhausted, HostUnsupported
from launcher.plan.facts import NodeFacts
from launcher.plan.settings import NetworkSettings
from launcher.plan.steps import ForwardNodePorts, NodePort
from launcher.spec.node_ports import WantedPort

SPAN = (30000, 30009)


def asking(text: str, name: str = "web") -> str:
    return f"""
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {{name: {name}, namespace: lab, uid: uid-{name}, annotations: {{launcher/node-ports: "{text}"}}}}
spec:
  domain:
    memory: {{guest: 1Gi}}
    devices:
      interfaces: [{{name: default, masquerade: {{}}, ports: [{{port: 22}}, {{port: 53, protocol: UDP}}]}}]
  networks: [{{name: default, pod: {{}}}}]
"""


def where(span: tuple[int, int] | None = SPAN, *held: Holding) -> Site:
    there = site(node(), held)
    return dataclasses.replace(there, plan=replace(there.plan, network=NetworkSettings(node_ports=span)))


def test_what_is_named_comes_first_and_the_rest_is_found() -> None:
    record = accepted(asking("22,30004:53/udp"), where())
    ssh, dns = record.allocations.node_ports
    assert dns == NodePort(protocol="udp", node=30004, guest=53)
    assert (ssh.protocol, ssh.guest, ssh.node in range(30000, 30010)) == ("tcp", 22, True)
    (step,) = [step for step in record.plan.steps if isinstance(step, ForwardNodePorts)]
    assert (step.ports, step.outer) == (record.allocations.node_ports, record.allocations.outer)
    running = replace(record, phase="Running")
    (told,) = [one for one in conditions(running, None, ()) if one.type == "NodePorts"]
    assert told.message == f"{ssh.node} -> 22/tcp, 30004 -> 53/udp"


def test_auto_is_all_ports_and_the_same_each_time() -> None:
    first, again = (accepted(asking("auto"), where()).allocations.node_ports for _ in range(2))
    assert first == again
    assert [(port.protocol, port.guest) for port in first] == [("tcp", 22), ("udp", 53)]


def test_nothing_asked_nothing_given() -> None:
    plain = asking("auto").replace('annotations: {launcher/node-ports: "auto"}', "labels: {}")
    record = accepted(plain, where(None))
    assert record.allocations.node_ports == ()
    assert not any(isinstance(step, ForwardNodePorts) for step in record.plan.steps)


def test_what_cannot_be_given_is_refused() -> None:
    with pytest.raises(HostUnsupported, match=r"network\.node_ports of the node names none"):
        accepted(asking("auto"), where(None))
    with pytest.raises(Exhausted, match="port 22000/tcp of the node is not in 30000-30009"):
        accepted(asking("22000:22"), where())
    first = accepted(asking("30001:22"), where())
    with pytest.raises(Exhausted, match="port 30001/tcp of the node is another instance's"):
        accepted(asking("30001:22", "other"), where(SPAN, holding(first)))
    udp = accepted(asking("30001:53/udp", "other"), where(SPAN, holding(first)))
    assert udp.allocations.node_ports[0].node == 30001, "another protocol's is another port"


@given(st.lists(st.tuples(st.integers(1, 65535), st.sampled_from(["tcp", "udp"])), max_size=30, unique=True))
def test_no_port_is_given_twice(wanted: list[tuple[int, str]]) -> None:
    taken: set[tuple[str, int]] = set()
    ledger = Ledger(NodeFacts(), Limits(), [Holding(key="a/b", node_ports=frozenset({("tcp", 30000)}))])
    for guest, protocol in wanted:
        port = WantedPort(protocol="udp" if protocol == "udp" else "tcp", guest=guest)
        used = sum(1 for kind, _ in taken if kind == protocol) + (protocol == "tcp")
        if used == 10:
            with pytest.raises(Exhausted, match="all 10"):
                ledger.free_node_port("u", port, SPAN, taken)
            return
        node_port = ledger.free_node_port("u", port, SPAN, taken)
        assert (protocol, node_port) not in taken | {("tcp", 30000)}
        assert SPAN[0] <= node_port <= SPAN[1]
        taken.add((protocol, node_port))
