# SPDX-License-Identifier: Apache-2.0
"""Two agents that know nothing of each other: one sends, the other receives, by an id that both were told."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from agent_world import (
    Object,
    client,
    eventually,
    leftovers,
    migrated,
    phase,
    running,
    ticker,
    ticks,
    until_gone,
)

from launcher.cli.client import Client
from launcher.errors import AlreadyExists, Conflict, NotFound, WrongPhase
from launcher.lab.conf import AGENT_PORT
from launcher.lab.image import Image
from launcher.lab.lab import Lab
from launcher.lab.node import Node
from launcher.rpc.struct import to_plain
from launcher.v1.migrations_pb2 import Migration

pytestmark = pytest.mark.node


@pytest.fixture(scope="module")
def nodes(needs_nodes: None) -> Iterator[tuple[Node, Node]]:
    """Nodes that are nobody's peers; one authority vouches for both."""
    with Lab(names=("a", "b")) as made:
        for name in made.names:
            config = made.node(name).layout.agent_config
            head, _, _ = config.read_text().partition("\n[peers]\n")
            assert "peers" not in head
            config.write_text(head + "\n")
        made.start_agents()
        yield made.node("a"), made.node("b")


@pytest.fixture
def agents(nodes: tuple[Node, Node]) -> Iterator[tuple[Client, Client]]:
    with client(nodes[0]) as a, client(nodes[1]) as b:
        yield a, b
        for agent in (a, b):
            for instance in agent.instances.list():
                agent.instances.delete(instance["metadata"]["name"], namespace="default", grace_period_s=0)
            for instance in agent.instances.list():
                until_gone(agent, instance["metadata"]["name"])
            for view in agent.migrations.list():
                agent.migrations.delete(to_plain(view.object)["metadata"]["name"], namespace="default")
        for node in nodes:
            assert leftovers(node) == []


def vmim(name: str, instance: str, **spec: Any) -> Object:
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstanceMigration",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"vmiName": instance, **spec},
    }


def sends(name: str, instance: str, to: Node, migration_id: str) -> Object:
    url = f"launcher://{to.ip}:{AGENT_PORT}"
    return vmim(name, instance, sendTo={"connectURL": url, "migrationID": migration_id})


def receives(name: str, instance: str, migration_id: str) -> Object:
    return vmim(name, instance, receive={"migrationID": migration_id})


def status(view: Migration) -> dict[str, Any]:
    found: dict[str, Any] = to_plain(view.object)["status"]
    return found


def test_the_sender_waits_for_the_receiver_and_both_tell_the_end(
    nodes: tuple[Node, Node], agents: tuple[Client, Client], bootsector_image: Image
) -> None:
    a, b = agents
    a.instances.create(ticker(bootsector_image))
    uid = running(a, "tick")["metadata"]["uid"]
    eventually("the guest ticks", lambda: ticks(a, "tick"))
    a.migrations.create(sends("out", "tick", nodes[1], "move-1"))
    with closing(a.migrations.watch("out", namespace="default", timeout_s=30)) as views:
        assert any("nobody here expects the migration move-1" in view.progress.note for view in views)
    assert phase(running(a, "tick")) == "Running"

    b.migrations.create(receives("in", "tick", "move-1"))
    with pytest.raises(Conflict):
        b.migrations.create(receives("in-2", "other", "move-1"))
    with pytest.raises(AlreadyExists):
        b.migrations.create(receives("in", "other", "move-2"))
    sent, received = migrated(a, "out"), migrated(b, "in")
    assert sent.report.succeeded, sent.report.reason
    assert received.report.succeeded
    assert status(sent)["migrationState"]["targetNode"] == "b"
    told = status(received)
    assert [t["phase"] for t in told["phaseTransitionTimestamps"]] == [
        "WaitingForSync",
        "TargetReady",
        "Succeeded",
    ]
    with pytest.raises(NotFound, match="recording 'default/in' not found"):
        b.migrations.recording("in", namespace="default")
    assert told["synchronizationAddresses"] == [f"{nodes[1].ip}:{AGENT_PORT}"]
    assert running(b, "tick")["metadata"]["uid"] == uid
    eventually("the guest ticks there", lambda: ticks(b, "tick"))
    until_gone(a, "tick")
    with pytest.raises(Conflict, match="on this node already"):
        b.migrations.create(receives("again", "tick", "move-3"))


def test_an_instance_that_waits_gives_way_and_comes_back_when_nothing_arrives(
    nodes: tuple[Node, Node], agents: tuple[Client, Client], bootsector_image: Image
) -> None:
    a, b = agents
    a.instances.create(ticker(bootsector_image))
    running(a, "tick")
    b.migrations.create(receives("in", "tick", "move-4"))
    b.instances.create(ticker(bootsector_image))
    assert phase(b.instances.get("tick", namespace="default")) == "WaitingForSync"
    assert nodes[1].run("virsh", "list", "--all", "--name").split() == []

    a.instances.create(ticker(bootsector_image, "other"))
    running(a, "other")
    a.migrations.create(sends("wrong", "other", nodes[1], "move-4"))
    assert "is expected to bring default/tick, not default/other" in migrated(a, "wrong").report.reason
    nodes[1].stop_agent()  # what waits and what is expected outlives the agent
    nodes[1].start_agent()
    assert phase(b.instances.get("tick", namespace="default")) == "WaitingForSync"

    nodes[1].rate(8)
    try:
        a.migrations.create(sends("lost", "tick", nodes[1], "move-4"))
        with closing(a.migrations.watch("lost", namespace="default", timeout_s=60)) as views:
            assert any(view.progress.iteration for view in views)
        with pytest.raises(WrongPhase, match="on its way"):
            b.migrations.cancel("in", namespace="default")
        with pytest.raises(NotFound):
            b.instances.get("tick", namespace="default")
        a.migrations.cancel("lost", namespace="default")
        assert not migrated(a, "lost").report.succeeded
    finally:
        nodes[1].rate(None)
    assert not migrated(b, "in").report.succeeded
    assert phase(running(a, "tick")) == "Running"
    eventually("it waits again", lambda: [phase(vmi) for vmi in b.instances.list()] == ["WaitingForSync"])

    b.migrations.create(receives("in-again", "tick", "move-5"))
    b.migrations.cancel("in-again", namespace="default")
    assert status(b.migrations.get("in-again", namespace="default"))["phase"] == "Failed"
    b.migrations.create(receives("in-last", "tick", "move-4"))
    a.migrations.create(sends("out", "tick", nodes[1], "move-4"))
    end = migrated(a, "out")
    assert end.report.succeeded, end.report.reason
    running(b, "tick")
    until_gone(a, "tick")
