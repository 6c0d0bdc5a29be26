# SPDX-License-Identifier: Apache-2.0
"""Killed at any instant: agents and libvirtd die by SIGKILL, guests do not notice, the state comes right."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import pytest
from agent_world import (
    client,
    condition,
    eventually,
    is_true,
    leftovers,
    linux,
    migrated,
    migration,
    phase,
    qemu_pid,
    running,
    ticker,
    ticks,
    until,
    until_gone,
)

from launcher.cli.client import Client
from launcher.errors import LauncherError, Unavailable
from launcher.lab.image import Image
from launcher.lab.lab import Lab
from launcher.lab.node import Node
from launcher.migration.recording import read_recording
from launcher.migration.rerun import recorded, rerun

pytestmark = pytest.mark.node


@pytest.fixture(scope="module")
def nodes(lab_with_agents: Lab) -> tuple[Node, Node]:
    return lab_with_agents.node("a"), lab_with_agents.node("b")


@pytest.fixture
def agents(nodes: tuple[Node, Node]) -> Iterator[tuple[Client, Client]]:
    with ExitStack() as stack:
        made = stack.enter_context(client(nodes[0])), stack.enter_context(client(nodes[1]))
        yield made
        for agent in made:
            for instance in agent.instances.list():
                agent.instances.delete(instance["metadata"]["name"], namespace="default", grace_period_s=0)
            for instance in agent.instances.list():
                until_gone(agent, instance["metadata"]["name"])
        for node in nodes:
            assert leftovers(node) == []


def answers(agent: Client) -> bool:
    """Whether the client reaches its agent: one that failed waits a second before it tries again."""
    try:
        agent.node()
    except Unavailable:
        return False
    return True


def restart(node: Node) -> None:
    """Kill the agent without warning and start it again."""
    node.stop_agent(signal.SIGKILL)
    node.start_agent()


def test_a_guest_lives_through_the_death_of_its_agent(
    nodes: tuple[Node, Node], agents: tuple[Client, Client], bootsector_image: Image
) -> None:
    (a, _), (agent, _) = nodes, agents
    agent.instances.create(ticker(bootsector_image))
    before = running(agent, "tick")
    pid = qemu_pid(a, "tick")
    a.stop_agent(signal.SIGKILL)
    with pytest.raises(Unavailable):
        agent.instances.list()
    a.start_agent()
    eventually("the client is connected again", lambda: answers(agent))
    after = running(agent, "tick")
    assert qemu_pid(a, "tick") == pid
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["status"]["phaseTransitionTimestamps"] == before["status"]["phaseTransitionTimestamps"]
    told = len(ticks(agent, "tick"))
    eventually("the guest ticks on", lambda: len(ticks(agent, "tick")) > told)
    agent.instances.pause("tick", namespace="default")
    restart(a)
    vmi = until(agent, "tick", lambda vmi: is_true(vmi, "Paused"))
    found = condition(vmi, "Paused")
    assert found is not None
    assert found["reason"] == "PausedByUser", "the user's wish outlives the agent"


def test_a_lost_database_is_told_and_its_guests_can_be_taken_over(
    nodes: tuple[Node, Node], agents: tuple[Client, Client], bootsector_image: Image
) -> None:
    (a, _), (agent, _) = nodes, agents
    manifest = ticker(bootsector_image)
    agent.instances.create(manifest)
    uid = running(agent, "tick")["metadata"]["uid"]
    pid = qemu_pid(a, "tick")
    a.stop_agent(signal.SIGKILL)
    for path in a.layout.outside("/var/lib/launcher").glob("launcher.db*"):
        path.unlink()
    a.start_agent()
    eventually("the client is connected again", lambda: answers(agent))
    assert agent.instances.list() == []
    with pytest.raises(LauncherError, match="default_tick") as refused:
        agent.instances.create(manifest)
    assert refused.value.reason == "ALREADY_EXISTS"
    assert "database was lost" in refused.value.hint
    agent.instances.create(manifest.replace("metadata: {", f"metadata: {{uid: {uid}, "))
    running(agent, "tick")
    assert qemu_pid(a, "tick") == pid, "the guest goes on"
    count = len(ticks(agent, "tick"))
    eventually("the guest ticks on", lambda: len(ticks(agent, "tick")) > count)


def test_sigterm_stops_the_agent_and_nothing_else(
    nodes: tuple[Node, Node], agents: tuple[Client, Client], bootsector_image: Image
) -> None:
    (a, _), (agent, _) = nodes, agents
    agent.instances.create(ticker(bootsector_image))
    running(agent, "tick")
    pid = qemu_pid(a, "tick")
    a.stop_agent(signal.SIGTERM)
    assert qemu_pid(a, "tick") == pid
    a.start_agent()
    assert phase(running(agent, "tick")) == "Running"
    assert qemu_pid(a, "tick") == pid


def test_what_happened_while_the_agent_was_dead_is_found_out(
    nodes: tuple[Node, Node], agents: tuple[Client, Client], bootsector_image: Image
) -> None:
    (a, _), (agent, _) = nodes, agents
    agent.instances.create(ticker(bootsector_image))
    running(agent, "tick")
    a.stop_agent(signal.SIGKILL)
    a.run("kill", "-9", qemu_pid(a, "tick"))
    a.start_agent()
    vmi = until(agent, "tick", lambda vmi: phase(vmi) == "Failed")
    assert vmi["status"]["reason"] == "GuestCrashed"


@pytest.mark.parametrize("after", ["prepare", "define", "start"])
def test_killed_on_the_way_up_it_goes_on(
    nodes: tuple[Node, Node], agents: tuple[Client, Client], bootsector_image: Image, after: str
) -> None:
    """The agent dies right after it said that it is about to do a step."""
    (a, _), (agent, _) = nodes, agents
    said = len(a.agent_log())
    agent.instances.create(ticker(bootsector_image))
    eventually(f"the agent says {after}", lambda: f"message={after} " in a.agent_log()[said:])
    restart(a)
    assert phase(running(agent, "tick")) == "Running"
    eventually("the guest ticks", lambda: ticks(agent, "tick"))


def test_killed_while_it_deletes_it_goes_on(
    nodes: tuple[Node, Node], agents: tuple[Client, Client], bootsector_image: Image
) -> None:
    (a, _), (agent, _) = nodes, agents
    agent.instances.create(ticker(bootsector_image, grace_s=3))
    running(agent, "tick")
    agent.instances.delete("tick", namespace="default")
    restart(a)
    until_gone(agent, "tick", timeout_s=20)
    assert leftovers(a) == []


def test_libvirtd_dies_and_comes_back(
    nodes: tuple[Node, Node], agents: tuple[Client, Client], bootsector_image: Image
) -> None:
    (a, _), (agent, _) = nodes, agents
    agent.instances.create(ticker(bootsector_image))
    running(agent, "tick")
    pid = qemu_pid(a, "tick")
    a.stop_libvirtd(signal.SIGKILL)
    eventually("the agent reports it", lambda: not agent.node().libvirt_connected)
    assert agent.node().libvirt_reason
    assert phase(agent.instances.get("tick", namespace="default")) == "Running"
    a.start_libvirtd()
    eventually("the agent is connected again", lambda: agent.node().libvirt_connected)
    assert qemu_pid(a, "tick") == pid
    agent.instances.pause("tick", namespace="default")
    agent.instances.unpause("tick", namespace="default")
    a.run("kill", "-9", pid)
    until(agent, "tick", lambda vmi: phase(vmi) == "Failed")  # events flow again


def test_an_agent_without_libvirtd_says_so_and_recovers(
    nodes: tuple[Node, Node], agents: tuple[Client, Client], bootsector_image: Image
) -> None:
    (a, _), (agent, _) = nodes, agents
    a.stop_agent()
    a.stop_libvirtd()
    a.start_agent()
    assert not agent.node().libvirt_connected
    with pytest.raises(LauncherError, match="libvirt"):
        agent.instances.create(ticker(bootsector_image))
    a.start_libvirtd()
    eventually("the agent is connected", lambda: agent.node().libvirt_connected)
    agent.instances.create(ticker(bootsector_image))
    assert phase(running(agent, "tick")) == "Running"


Kill = Callable[[Node, Node], None]


def _kill_source(a: Node, _b: Node) -> None:
    restart(a)


def _kill_target(_a: Node, b: Node) -> None:
    restart(b)


def _kill_both(a: Node, b: Node) -> None:
    a.stop_agent(signal.SIGKILL)
    b.stop_agent(signal.SIGKILL)
    b.start_agent()
    a.start_agent()


@pytest.mark.parametrize("kill", [_kill_source, _kill_target, _kill_both], ids=["source", "target", "both"])
def test_a_migration_lives_through_the_death_of_agents(
    nodes: tuple[Node, Node], agents: tuple[Client, Client], guest_image: Image, kill: Kill
) -> None:
    (a, b), (source, target) = nodes, agents
    source.instances.create(linux(guest_image, "moving", cmdline="dirty=16,8", memory="160Mi"))
    running(source, "moving")
    eventually("the guest is up", lambda: ticks(source, "moving"))
    pid = qemu_pid(a, "moving")
    b.rate(120)
    try:
        move = f"move{kill.__name__.replace('_', '-')}"
        source.migrations.create(migration("moving", move), target="b")
        with closing(source.migrations.watch(move, namespace="default", timeout_s=60)) as views:
            for view in views:
                if view.progress.iteration >= 1 and view.progress.remaining_bytes:
                    break
        kill(a, b)
        assert qemu_pid(a, "moving") in {pid, ""}, "the source's guest was not touched, or has moved on"
        b.rate(None)
        end = migrated(source, move)
    finally:
        b.rate(None)
    assert end.report.succeeded, end.report.reason
    assert end.report.downtime_ms > 0
    recording = read_recording(source.migrations.recording(move, namespace="default"))
    assert recorded(recording) == rerun(recording), "also over the death of an agent"
    assert recording.end is not None
    assert phase(running(target, "moving")) == "Running"
    until_gone(source, "moving")
    told = len(ticks(target, "moving"))
    eventually("the guest ticks on the target", lambda: len(ticks(target, "moving")) > told)
    assert leftovers(a) == []


def test_a_migration_that_ended_while_the_source_agent_was_dead_is_reported(
    nodes: tuple[Node, Node], agents: tuple[Client, Client], guest_image: Image
) -> None:
    (a, b), (source, target) = nodes, agents
    source.instances.create(linux(guest_image, "gone", cmdline="dirty=8,1", memory="160Mi"))
    running(source, "gone")
    eventually("the guest is up", lambda: ticks(source, "gone"))
    b.rate(200)
    try:
        source.migrations.create(migration("gone", "late"), target="b")
        with closing(source.migrations.watch("late", namespace="default", timeout_s=60)) as views:
            for view in views:
                if view.progress.iteration >= 1 and view.progress.remaining_bytes:
                    break
        a.stop_agent(signal.SIGKILL)
    finally:
        b.rate(None)
    eventually("the guest arrives by itself", lambda: target.instances.list())
    running(target, "gone")
    a.start_agent()
    end = migrated(source, "late")
    assert end.report.succeeded, end.report.reason
    until_gone(source, "gone")
    assert leftovers(a) == []
