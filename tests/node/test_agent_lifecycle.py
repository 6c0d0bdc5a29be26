# SPDX-License-Identifier: Apache-2.0
"""An instance's life on a real node: boot, console, pause, shutdown, crash, delete, and nothing left."""

from __future__ import annotations

import queue
from collections.abc import Iterator

import pytest
from agent_world import (
    client,
    condition,
    eventually,
    is_true,
    leftovers,
    linux,
    phase,
    running,
    ticker,
    ticks,
    until,
    until_gone,
)

from launcher.cli.client import Client
from launcher.errors import AlreadyExists, InvalidSpec, NotFound, WrongPhase
from launcher.lab.image import Image
from launcher.lab.lab import Lab
from launcher.lab.node import Node

pytestmark = pytest.mark.node


@pytest.fixture(scope="module")
def node(lab_with_agents: Lab) -> Node:
    return lab_with_agents.node("a")


@pytest.fixture
def agent(node: Node) -> Iterator[Client]:
    with client(node) as agent:
        yield agent
        for instance in agent.instances.list():
            agent.instances.delete(instance["metadata"]["name"], namespace="default", grace_period_s=0)
        for instance in agent.instances.list():
            until_gone(agent, instance["metadata"]["name"])
        assert leftovers(node) == []


def test_a_guest_boots_is_reported_and_leaves_nothing(agent: Client, bootsector_image: Image) -> None:
    agent.instances.create(ticker(bootsector_image))
    vmi = running(agent, "tick")
    status = vmi["status"]
    assert [t["phase"] for t in status["phaseTransitionTimestamps"]] == ["Pending", "Scheduled", "Running"]
    assert status["nodeName"] == "a"
    assert status["interfaces"][0]["mac"].startswith("02:")
    assert status["volumeStatus"] == [{"name": "root", "target": "vda"}]
    assert is_true(vmi, "LiveMigratable")
    assert is_true(vmi, "SoftwareEmulation")
    eventually("the guest ticks", lambda: len(ticks(agent, "tick")) >= 2)
    xml = agent.instances.domain_xml("tick", namespace="default")
    assert "<name>default_tick</name>" in xml


def test_pause_holds_the_guest_until_unpause(agent: Client, bootsector_image: Image) -> None:
    agent.instances.create(ticker(bootsector_image))
    running(agent, "tick")
    paused = agent.instances.pause("tick", namespace="default")
    found = condition(paused, "Paused")
    assert found is not None
    assert found["reason"] == "PausedByUser"
    assert not is_true(paused, "Ready")
    still = ticks(agent, "tick")
    assert agent.instances.pause("tick", namespace="default")["status"]["phase"] == "Running"
    resumed = agent.instances.unpause("tick", namespace="default")
    assert condition(resumed, "Paused") is None
    eventually("the guest ticks again", lambda: len(ticks(agent, "tick")) > len(still) + 1)


def test_start_strategy_paused_waits_for_unpause(agent: Client, bootsector_image: Image) -> None:
    agent.instances.create(ticker(bootsector_image, extra="startStrategy: Paused"))
    until(agent, "tick", lambda vmi: phase(vmi) == "Running" and is_true(vmi, "Paused"))
    assert ticks(agent, "tick") == []
    agent.instances.unpause("tick", namespace="default")
    eventually("the guest ticks", lambda: ticks(agent, "tick"))


def test_a_guest_that_powers_off_has_succeeded_and_is_not_started_again(
    agent: Client, node: Node, guest_image: Image
) -> None:
    agent.instances.create(linux(guest_image, "short", cmdline="off=1"))
    vmi = until(agent, "short", lambda vmi: phase(vmi) in {"Succeeded", "Failed"})
    assert phase(vmi) == "Succeeded"
    eventually("the domain is forgotten", lambda: node.run("virsh", "list", "--all", "--name").split() == [])
    assert phase(agent.instances.get("short", namespace="default")) == "Succeeded"
    with pytest.raises(WrongPhase, match="must be Running"):
        agent.instances.pause("short", namespace="default")


def test_a_killed_qemu_is_a_failed_instance(agent: Client, node: Node, bootsector_image: Image) -> None:
    agent.instances.create(ticker(bootsector_image))
    running(agent, "tick")
    node.run("sh", "-c", "kill -9 $(cat /run/libvirt/qemu/default_tick.pid)")
    vmi = until(agent, "tick", lambda vmi: phase(vmi) == "Failed")
    assert vmi["status"]["reason"] == "GuestCrashed"


def test_delete_asks_the_guest_first(agent: Client, guest_image: Image) -> None:
    agent.instances.create(linux(guest_image, "polite", grace_s=60))
    running(agent, "polite")
    eventually(
        "the guest is up",
        lambda: b"GUEST UP" in agent.instances.console_log("polite", namespace="default"),
    )
    agent.instances.delete("polite", namespace="default")
    until_gone(agent, "polite", timeout_s=30)  # half of its grace: it went by itself


def test_a_deaf_guest_is_killed_when_its_grace_is_over(agent: Client, bootsector_image: Image) -> None:
    agent.instances.create(ticker(bootsector_image, grace_s=2))
    running(agent, "tick")
    agent.instances.delete("tick", namespace="default")
    vmi = agent.instances.get("tick", namespace="default")
    assert vmi["metadata"]["deletionTimestamp"]
    until_gone(agent, "tick", timeout_s=20)
    with pytest.raises(NotFound):
        agent.instances.get("tick", namespace="default")


def test_the_console_takes_keys_and_shows_what_the_guest_says(agent: Client, guest_image: Image) -> None:
    agent.instances.create(linux(guest_image, "shell", cmdline="shell=1 tick=0"))
    running(agent, "shell")
    keys: queue.Queue[bytes | None] = queue.Queue()
    console = agent.instances.console("shell", iter(keys.get, None), namespace="default")
    seen = b""
    asked = False
    for data in console:
        seen += data
        if not asked and (b"# " in seen or b"GUEST UP" in seen):
            keys.put(b"echo $((6*7))-answer\n")
            asked = True
        if b"42-answer" in seen:
            break
    keys.put(None)
    console.close()
    assert b"42-answer" in seen


def test_names_are_taken_once_and_the_same_object_twice_is_fine(
    agent: Client, bootsector_image: Image
) -> None:
    made = agent.instances.create(ticker(bootsector_image))
    with pytest.raises(AlreadyExists):
        agent.instances.create(ticker(bootsector_image))
    again = agent.instances.create(made)
    assert again["metadata"]["uid"] == made["metadata"]["uid"]
    assert len(agent.instances.list()) == 1


def test_dry_run_plans_and_leaves_nothing(agent: Client, node: Node, bootsector_image: Image) -> None:
    vmi = agent.instances.create(ticker(bootsector_image), dry_run=True)
    assert phase(vmi) == "Pending"
    assert agent.instances.list() == []
    assert leftovers(node) == []


def test_every_error_of_a_manifest_comes_back(agent: Client, bootsector_image: Image) -> None:
    broken = ticker(bootsector_image).replace("memory:", "memori:").replace("bus: virtio", "bus: ide")
    with pytest.raises(InvalidSpec) as caught:
        agent.instances.create(broken)
    fields = {violation.field for violation in caught.value.violations}
    assert "spec.domain.memori" in fields
    assert any(violation.line for violation in caught.value.violations)


def test_a_missing_image_is_a_condition_that_names_the_volume(agent: Client, bootsector_image: Image) -> None:
    agent.instances.create(ticker(bootsector_image).replace(bootsector_image.reference, "oci:/nowhere:x"))
    vmi = until(agent, "tick", lambda vmi: condition(vmi, "Synchronized"))
    found = condition(vmi, "Synchronized")
    assert found is not None
    assert "volume 'root'" in found["message"]
    assert "/nowhere" in found["message"]
