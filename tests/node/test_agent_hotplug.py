# SPDX-License-Identifier: Apache-2.0
"""vCPUs and memory plugged into guests that run: seen inside, through deaths of the agent, on both sides of a
migration; and pCPUs that no two guests share."""

from __future__ import annotations

import queue
import re
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
from agent_world import (
    DEADLINE_S,
    Object,
    client,
    condition,
    eventually,
    leftovers,
    linux,
    migrated,
    migration,
    running,
    ticker,
    ticks,
    until,
    until_gone,
)

from launcher.cli.client import Client
from launcher.domain.read import DomainView, read_domain
from launcher.errors import Exhausted, InvalidSpec, Unavailable, WrongPhase
from launcher.lab.image import Image
from launcher.lab.lab import Lab
from launcher.lab.node import Node
from launcher.rpc.struct import to_plain

pytestmark = pytest.mark.node
Agents = tuple[Client, Client]
MIB = 2**20


@pytest.fixture(scope="module")
def nodes(lab_with_agents: Lab) -> tuple[Node, Node]:
    return lab_with_agents.node("a"), lab_with_agents.node("b")


@pytest.fixture
def agents(nodes: tuple[Node, Node]) -> Iterator[Agents]:
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


def growing(image: Image, name: str = "grow") -> str:
    """A guest of 1 GiB and one socket that may have four times of both."""
    manifest = linux(image, name, cmdline="shell=1 tick=0 memhp_default_state=online_movable", memory="1Gi")
    return manifest.replace("memory: {guest: 1Gi}", "cpu: {sockets: 1}\n    memory: {guest: 1Gi}")


def change(agent: Client, name: str, *, sockets: int | None = None, memory: str | None = None) -> Object:
    """What ``launcherctl set`` does."""
    vmi = agent.instances.get(name, namespace="default")
    if sockets is not None:
        vmi["spec"]["domain"]["cpu"]["sockets"] = sockets
    if memory is not None:
        vmi["spec"]["domain"]["memory"]["guest"] = memory
    return agent.instances.update(vmi)


def has(vmi: Object, *, sockets: int, mebibytes: int) -> bool:
    """Whether the status says that the guest has so much."""
    status = vmi["status"]
    return (
        status["currentCPUTopology"]["sockets"] == sockets
        and int(status["memory"]["guestCurrent"]) == mebibytes * MIB
        and int(status["memory"]["guestRequested"]) == mebibytes * MIB
    )


def domain(agent: Client, name: str) -> DomainView:
    """The domain as it runs."""
    return read_domain(agent.instances.domain_xml(name, namespace="default"))


def inside(agent: Client, name: str, command: str) -> str:
    """What ``command`` prints in the guest's shell."""
    keys: queue.Queue[bytes | None] = queue.Queue()
    console = agent.instances.console(name, iter(keys.get, None), namespace="default")
    deadline = threading.Timer(DEADLINE_S, console.close)
    deadline.start()
    seen = b""
    # The shell puts the marks together, so that the echo of the command has none.
    keys.put(b"\necho BE''GIN $(" + command.encode() + b") E''ND\n")
    try:
        for data in console:
            seen += data
            found = re.search(rb"BEGIN (.*?) END", seen, re.DOTALL)
            if found is not None:
                return found[1].decode().strip()
    finally:
        deadline.cancel()
        keys.put(None)
        console.close()
    raise AssertionError(f"no answer; the console said {seen[-500:]!r}")


def booted(agent: Client, name: str) -> None:
    running(agent, name)
    eventually(
        "the guest is up",
        lambda: b"GUEST UP" in agent.instances.console_log(name, namespace="default"),
    )


ONLINE = "for c in /sys/devices/system/cpu/cpu[0-9]*; do echo 1 2>/dev/null >$c/online; done; nproc"


def test_a_guest_grows_through_a_death_and_a_migration(
    nodes: tuple[Node, Node], agents: Agents, guest_image: Image
) -> None:
    a, b = agents
    a.instances.create(growing(guest_image))
    booted(a, "grow")
    before = int(inside(a, "grow", "grep MemTotal /proc/meminfo | tr -dc 0-9"))
    change(a, "grow", sockets=2, memory="1280Mi")
    nodes[0].stop_agent(signal.SIGKILL)  # it has the request on disk, and may be anywhere in its work
    nodes[0].start_agent()
    eventually("the client is connected again", lambda: answers(a))
    vmi = until(a, "grow", lambda vmi: has(vmi, sockets=2, mebibytes=1280))
    assert condition(vmi, "HotVCPUChange") is None
    assert condition(vmi, "HotMemoryChange") is None
    assert int(vmi["status"]["memory"]["guestAtBoot"]) == 1024 * MIB
    assert int(vmi["status"]["memory"]["memoryOverhead"]) > 50 * MIB
    live = domain(a, "grow")
    assert (live.vcpus, live.max_vcpus) == (2, 4)
    assert [device.requested for device in live.memory_devices] == [256 * MIB]
    assert inside(a, "grow", ONLINE) == "2"
    after = int(inside(a, "grow", "grep MemTotal /proc/meminfo | tr -dc 0-9"))
    assert after - before == 256 * 1024

    a.migrations.create(migration("grow"), target="b")
    report = migrated(a, "move-grow").report
    assert report.succeeded, report.reason
    moved = until(b, "grow", lambda vmi: has(vmi, sockets=2, mebibytes=1280))
    assert int(moved["status"]["memory"]["guestAtBoot"]) == 1024 * MIB
    assert moved["spec"]["domain"]["cpu"]["maxSockets"] == 4
    until_gone(a, "grow")
    assert domain(b, "grow").memory_devices[0].address == live.memory_devices[0].address

    change(b, "grow", sockets=3, memory="1536Mi")
    until(b, "grow", lambda vmi: has(vmi, sockets=3, mebibytes=1536))
    assert inside(b, "grow", ONLINE) == "3"
    change(b, "grow", memory="1Gi")
    until(b, "grow", lambda vmi: has(vmi, sockets=3, mebibytes=1024))
    next_start = read_domain(nodes[1].run("virsh", "dumpxml", "--inactive", "default_grow"))
    assert next_start.vcpus == 3
    assert [device.requested for device in next_start.memory_devices] == [0]


def answers(agent: Client) -> bool:
    """Whether the client reaches its agent."""
    try:
        agent.node()
    except Unavailable:
        return False
    return True


def test_what_cannot_change_is_named_path_by_path(agents: Agents, guest_image: Image) -> None:
    a, _ = agents
    made = a.instances.create(growing(guest_image))
    running(a, "grow")
    made["spec"]["domain"]["cpu"].update(cores=2, sockets=9)
    made["spec"]["domain"]["memory"]["guest"] = "9Gi"
    made["spec"]["hostname"] = "other"
    with pytest.raises(InvalidSpec) as caught:
        a.instances.update(made)
    assert {violation.field for violation in caught.value.violations} == {
        "spec.hostname",
        "spec.domain.cpu.cores",
        "spec.domain.cpu.sockets",
        "spec.domain.memory.guest",
    }
    same = a.instances.update(growing(guest_image))
    assert has(same, sockets=1, mebibytes=1024), "the manifest it was made of changes nothing"
    change(a, "grow", sockets=2)
    with pytest.raises(InvalidSpec, match="not taken from a guest"):
        change(a, "grow", sockets=1)


def test_a_guest_that_does_not_run_is_not_changed(agents: Agents, guest_image: Image) -> None:
    a, _ = agents
    a.instances.create(growing(guest_image).replace(guest_image.reference, "oci:/nowhere:x"))
    with pytest.raises(WrongPhase, match="must be Running"):
        change(a, "grow", sockets=2)


def test_a_guest_without_the_driver_says_so(agents: Agents, bootsector_image: Image) -> None:
    """Nobody in the guest takes the memory: the condition holds for as long as that is so."""
    a, _ = agents
    a.instances.create(ticker(bootsector_image).replace("64Mi", "1Gi"))
    running(a, "tick")
    change(a, "tick", memory="2Gi")
    vmi = until(a, "tick", lambda vmi: int(vmi["status"]["memory"]["guestRequested"]) == 2048 * MIB)
    found = condition(vmi, "HotMemoryChange")
    assert found is not None
    assert found["status"] == "True"
    assert found["message"].startswith("the guest has 1.0 GiB of 2.0 GiB")
    assert int(vmi["status"]["memory"]["guestCurrent"]) == 1024 * MIB


def test_dedicated_cpus_are_nobody_elses(
    nodes: tuple[Node, Node], agents: Agents, bootsector_image: Image
) -> None:
    a, _ = agents
    cpus = pcpus(a)
    assert cpus >= 2, "a machine with one CPU shows nothing here"
    made = [dedicated(bootsector_image, f"own{number}") for number in range(2)]
    for manifest in made:
        a.instances.create(manifest)
    pins = []
    for number in range(2):
        running(a, f"own{number}")
        pins.append(domain(a, f"own{number}").pins[0])
    assert len(set(pins)) == 2
    assert all(len(pin) == 1 for pin in pins)
    nodes[0].stop_agent(signal.SIGKILL)
    nodes[0].start_agent()
    eventually("the client is connected again", lambda: answers(a))
    wanted = cpus - 1
    with pytest.raises(Exhausted, match=rf"{wanted} dedicated CPUs are asked for"):
        a.instances.create(dedicated(bootsector_image, "late", cores=wanted))
    a.instances.delete("own0", namespace="default", grace_period_s=0)
    until_gone(a, "own0")
    a.instances.create(dedicated(bootsector_image, "late", cores=wanted))
    running(a, "late")
    held = {pin for pins in domain(a, "late").pins.values() for pin in pins}
    assert held.isdisjoint(domain(a, "own1").pins[0])


def test_a_plugged_vcpu_has_a_pcpu_of_its_own(
    agents: Agents, guest_image: Image, bootsector_image: Image
) -> None:
    a, b = agents
    manifest = growing(guest_image, "own").replace("sockets: 1", "sockets: 1, dedicatedCpuPlacement: true")
    a.instances.create(manifest)
    booted(a, "own")
    change(a, "own", sockets=2)
    until(a, "own", lambda vmi: vmi["status"]["currentCPUTopology"]["sockets"] == 2)
    pins = domain(a, "own").pins
    assert len({pins[0], pins[1]}) == 2
    with pytest.raises(Exhausted, match=f"{pcpus(a) - 2} are free"):
        a.instances.create(dedicated(bootsector_image, "late", cores=pcpus(a) - 1))
    a.migrations.create(migration("own"), target="b")
    report = migrated(a, "move-own").report
    assert report.succeeded, report.reason
    moved = until(b, "own", lambda vmi: vmi["status"]["currentCPUTopology"]["sockets"] == 2)
    assert moved["status"]["nodeName"] == "b"
    pins = domain(b, "own").pins
    assert len({pins[0], pins[1]}) == 2
    with pytest.raises(Exhausted, match=f"{pcpus(b) - 2} are free"):
        b.instances.create(dedicated(bootsector_image, "late", cores=pcpus(b) - 1))
    until_gone(a, "own")
    assert domain_of(a, dedicated(bootsector_image, "late", cores=pcpus(a) - 1)).pins, "a has them again"


def domain_of(agent: Client, manifest: str) -> DomainView:
    """The domain of a new instance called late."""
    agent.instances.create(manifest)
    running(agent, "late")
    return domain(agent, "late")


def test_the_last_cpus_go_to_one_of_many_who_ask_at_once(agents: Agents, bootsector_image: Image) -> None:
    a, _ = agents
    there = pcpus(a)

    def ask(number: int) -> bool:
        try:
            a.instances.create(dedicated(bootsector_image, f"own{number}"))
        except Exhausted:
            return False
        return True

    with ThreadPoolExecutor(there + 3) as pool:
        got = list(pool.map(ask, range(there + 3)))
    assert sum(got) == there
    winners = [f"own{number}" for number, won in enumerate(got) if won]
    for name in winners:
        running(a, name)
    assert len({domain(a, name).pins[0] for name in winners}) == there


def test_what_libvirt_refuses_is_told_and_the_guest_goes_on(agents: Agents, bootsector_image: Image) -> None:
    a, _ = agents
    place = 'annotations: {kubevirt.io/placePCIDevicesOnRootComplex: "true"}'
    manifest = (
        ticker(bootsector_image)
        .replace("64Mi", "1Gi")
        .replace("namespace: default}", f"namespace: default, {place}}}")
    )
    a.instances.create(manifest)
    running(a, "tick")
    change(a, "tick", memory="2Gi")
    vmi = until(
        a,
        "tick",
        lambda vmi: "attach device" in (condition(vmi, "HotMemoryChange") or {"message": ""})["message"],
    )
    assert int(vmi["status"]["memory"]["guestRequested"]) == 1024 * MIB
    assert int(vmi["status"]["memory"]["guestCurrent"]) == 1024 * MIB
    told = len(ticks(a, "tick"))
    eventually("the guest ticks on", lambda: len(ticks(a, "tick")) > told)
    change(a, "tick", memory="1Gi")
    until(a, "tick", lambda vmi: condition(vmi, "HotMemoryChange") is None)


def pcpus(agent: Client) -> int:
    """How many CPUs the node has."""
    facts = to_plain(agent.node().facts)
    return sum(len(cell["cpus"]) for cell in facts["cells"])


def dedicated(image: Image, name: str, *, cores: int = 1) -> str:
    """A boot sector guest with CPUs of its own."""
    return ticker(image, name).replace(
        "memory: {guest: 64Mi}",
        f"cpu: {{cores: {cores}, dedicatedCpuPlacement: true}}\n    memory: {{guest: 64Mi}}",
    )
