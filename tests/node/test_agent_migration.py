# SPDX-License-Identifier: Apache-2.0
"""Live migrations between two agents, each with its own libvirtd: there, back, refused, cancelled."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

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
    running,
    ticker,
    ticks,
    until_gone,
)

from launcher.cli.client import Client
from launcher.errors import InvalidRequest, InvalidSpec, MigrationRefused, NotFound, WrongPhase
from launcher.lab.image import Image
from launcher.lab.lab import Lab
from launcher.lab.node import Node
from launcher.migration.curves import curves
from launcher.migration.recording import read_recording
from launcher.migration.rerun import recorded, rerun
from launcher.rpc.struct import to_plain
from launcher.v1.migrations_pb2 import Migration
from launcher.v1.types_pb2 import ClaimBinding, Companions

pytestmark = pytest.mark.node
Agents = tuple[Client, Client]


@pytest.fixture(scope="module")
def nodes(lab_with_agents: Lab) -> tuple[Node, Node]:
    return lab_with_agents.node("a"), lab_with_agents.node("b")


@pytest.fixture
def agents(nodes: tuple[Node, Node]) -> Iterator[Agents]:
    with client(nodes[0]) as a, client(nodes[1]) as b:
        yield a, b
        for agent in (a, b):
            for instance in agent.instances.list():
                agent.instances.delete(instance["metadata"]["name"], namespace="default", grace_period_s=0)
            for instance in agent.instances.list():
                until_gone(agent, instance["metadata"]["name"])
        for node in nodes:
            assert leftovers(node) == []


def test_there_and_back_with_a_disk(
    agents: Agents, nodes: tuple[Node, Node], bootsector_image: Image
) -> None:
    a, b = agents
    a.instances.create(ticker(bootsector_image))
    before = running(a, "tick")
    eventually("the guest ticks", lambda: ticks(a, "tick"))
    folder = Companions(claims=[ClaimBinding(claim="backups", path="/tmp")])
    before["spec"]["utilityVolumes"] = [{"name": "store", "claimName": "backups"}]
    a.instances.update(before, folder)
    a.migrations.create(migration("tick", "out"), target="b")
    seen = len(ticks(a, "tick"))
    eventually("the guest ticks meanwhile", lambda: len(ticks(a, "tick")) >= seen + 2)
    waiting = to_plain(a.migrations.get("out", namespace="default").object)
    assert waiting["status"]["phase"] == "Pending"
    (blocked,) = waiting["status"]["conditions"]
    assert blocked["type"] == "migrationBlockedByUtilityVolumes"
    assert blocked["message"].endswith(": store")
    del before["spec"]["utilityVolumes"]
    a.instances.update(before)  # a migration waits until a dump or backup cannot lose its place
    out = migrated(a, "out")
    assert out.report.succeeded, out.report.reason
    assert out.report.source == "libvirt"
    assert out.report.downtime_ms > 0
    assert out.report.iterations >= 1
    assert out.report.steps[0].action.startswith("max_downtime 150")

    assert a.instances.list() == [], "who sees that it moved finds nothing of it here"
    assert leftovers(nodes[0]) == []
    after = running(b, "tick")
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["status"]["interfaces"][0]["mac"] == before["status"]["interfaces"][0]["mac"]
    assert after["status"]["nodeName"] == "b"
    assert after["status"]["migrationState"]["sourceNode"] == "a"
    assert after["status"]["migrationState"]["completed"] is True
    eventually("the guest ticks on the target", lambda: len(ticks(b, "tick")) >= 2)

    b.migrations.create(migration("tick", "home"), target="a")
    home = migrated(b, "home")
    assert home.report.succeeded, home.report.reason
    assert phase(running(a, "tick")) == "Running"
    eventually("the guest ticks at home", lambda: len(ticks(a, "tick")) >= 2)


def test_the_ramp_ends_a_busy_guest(agents: Agents, nodes: tuple[Node, Node], guest_image: Image) -> None:
    a, b = agents
    a.instances.create(linux(guest_image, "busy", cmdline="dirty=24,40", memory="160Mi"))
    running(a, "busy")
    eventually("the guest is up", lambda: ticks(a, "busy"))
    for node in nodes:
        node.rate(400)
    try:
        a.migrations.create(migration("busy"), target="b")
        with closing(a.migrations.watch("move-busy", namespace="default", timeout_s=120)) as views:
            seen = list(views)
    finally:
        for node in nodes:
            node.rate(None)
    report = seen[-1].report
    assert report.succeeded, report.reason
    assert report.iterations >= 2
    limits = [step.action for step in report.steps if step.action.startswith("max_downtime")]
    assert limits[0].startswith("max_downtime 150")
    looks = [view.progress for view in seen if view.HasField("progress")]
    assert any(look.remaining_bytes > 0 and look.bandwidth_bytes_per_second > 0 for look in looks)
    recording = read_recording(a.migrations.recording("move-busy", namespace="default"))
    assert recorded(recording) == rerun(recording)
    assert [mark.text for mark in curves(recording).marks] == [
        limit.replace("max_downtime", "allow") for limit in limits
    ]
    assert len(recording.samples) >= len(looks) / 2
    assert recording.end is not None
    assert recording.end.report is not None
    assert recording.end.report.downtime_ms == report.downtime_ms
    eventually("the guest ticks on the target", lambda: len(ticks(b, "busy")) >= 2)
    phases = [t["phase"] for t in _status(seen[-1])["phaseTransitionTimestamps"]]
    assert phases == ["Pending", "PreparingTarget", "TargetReady", "Running", "Succeeded"]


def test_cancel_keeps_the_guest_where_it_is(
    agents: Agents, nodes: tuple[Node, Node], guest_image: Image
) -> None:
    a, b = agents
    a.instances.create(linux(guest_image, "hog", cmdline="dirty=64,400", memory="192Mi"))
    running(a, "hog")
    eventually("the guest is up", lambda: ticks(a, "hog"))
    nodes[1].rate(80)
    try:
        a.migrations.create(migration("hog"), target="b")
        with closing(a.migrations.watch("move-hog", namespace="default", timeout_s=60)) as views:
            for view in views:
                if view.progress.iteration >= 1 and view.progress.remaining_bytes:
                    break
        with pytest.raises(WrongPhase, match="while it migrates"):
            a.instances.pause("hog", namespace="default")
        a.migrations.cancel("move-hog", namespace="default")
        end = migrated(a, "move-hog")
    finally:
        nodes[1].rate(None)
    assert not end.report.succeeded
    state = _status(end)["migrationState"]
    assert state["abortStatus"] == "Succeeded"
    vmi = running(a, "hog")
    assert condition(vmi, "Paused") is None
    told = len(ticks(a, "hog"))
    eventually("the guest goes on", lambda: len(ticks(a, "hog")) > told + 1)
    assert leftovers(nodes[1]) == []
    assert b.instances.list() == []


def test_a_paused_guest_stays_paused(agents: Agents, bootsector_image: Image) -> None:
    a, b = agents
    a.instances.create(ticker(bootsector_image))
    running(a, "tick")
    a.instances.pause("tick", namespace="default")
    a.migrations.create(migration("tick", "quiet"), target="b")
    assert migrated(a, "quiet").report.succeeded
    eventually("it arrived", lambda: b.instances.list())
    vmi = b.instances.get("tick", namespace="default")
    assert is_true(vmi, "Paused")
    assert ticks(b, "tick") == []
    b.instances.unpause("tick", namespace="default")
    eventually("it goes on when the user says so", lambda: ticks(b, "tick"))


def test_all_findings_of_the_target_come_at_once(
    agents: Agents, nodes: tuple[Node, Node], bootsector_image: Image
) -> None:
    a, b = agents
    a.instances.create(ticker(bootsector_image))
    b.instances.create(ticker(bootsector_image))
    running(a, "tick")
    running(b, "tick")
    a.migrations.create(migration("tick", "clash"), target="b")
    end = migrated(a, "clash", timeout_s=20)
    assert not end.report.succeeded
    assert "default_tick" in end.report.reason
    assert "default/tick is on this node already" in end.report.reason
    assert phase(running(a, "tick")) == "Running"
    assert phase(running(b, "tick")) == "Running"


def test_requests_that_make_no_sense_are_refused(agents: Agents, bootsector_image: Image) -> None:
    a, _ = agents
    with pytest.raises(NotFound):
        a.migrations.create(migration("nobody"), target="b")
    a.instances.create(ticker(bootsector_image))
    running(a, "tick")
    with pytest.raises((InvalidRequest, InvalidSpec), match="on this node already"):
        a.migrations.create(migration("tick"), target="a")
    with pytest.raises((InvalidRequest, InvalidSpec), match="no such peer"):
        a.migrations.create(migration("tick"), target="z")
    assert a.migrations.list(namespace="default") is not None
    assert phase(a.instances.get("tick", namespace="default")) == "Running"


def test_a_disk_that_only_this_node_reaches_is_not_migrated(agents: Agents, nodes: tuple[Node, Node]) -> None:
    a, _ = agents
    manifest = """
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {name: local, namespace: default}
spec:
  domain:
    memory: {guest: 64Mi}
    devices: {autoattachPodInterface: false, disks: [{name: d, disk: {bus: virtio}}]}
  volumes: [{name: d, hostDisk: {path: /var/lib/launcher/local.img, type: DiskOrCreate, capacity: 4Mi}}]
"""
    a.instances.create(manifest)
    vmi = running(a, "local")
    found = condition(vmi, "LiveMigratable")
    assert found is not None
    assert (found["status"], found["reason"]) == ("False", "DisksNotLiveMigratable")
    with pytest.raises(MigrationRefused, match="only this node reaches: d"):
        a.migrations.create(migration("local"), target="b")
    a.instances.delete("local", namespace="default", grace_period_s=0)
    until_gone(a, "local")
    disk = nodes[0].layout.outside("/var/lib/launcher/local.img")
    assert disk.stat().st_size == 4 << 20, "a hostDisk is never deleted"
    disk.unlink()


def _status(view: Migration) -> dict[str, Any]:
    status: dict[str, Any] = to_plain(view.object)["status"]
    return status
