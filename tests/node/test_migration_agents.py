# SPDX-License-Identifier: Apache-2.0
"""Migrations between two agents: options and policies, TLS, copied disks, the queue, and what is refused."""

from __future__ import annotations

import hashlib
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from agent_world import (
    client,
    eventually,
    leftovers,
    linux,
    migrated,
    migration,
    phase,
    qemu_pid,
    running,
    ticker,
    ticks,
    until_gone,
)

from launcher.cli.client import Client
from launcher.errors import MigrationRefused
from launcher.lab.image import Image
from launcher.lab.lab import Lab
from launcher.lab.node import Node
from launcher.lab.pki import qemu_folder
from launcher.rpc.struct import to_plain
from launcher.v1.migrations_pb2 import Migration

pytestmark = pytest.mark.node
Agents = tuple[Client, Client]
Nodes = tuple[Node, Node]
MIB = 1 << 20
POLICIES = "/var/lib/launcher-lab/policies"
POLICY = """
apiVersion: migrations.kubevirt.io/v1alpha1
kind: MigrationPolicy
metadata: {name: careful}
spec:
  maxDowntimeMs: 500
  bandwidthPerMigration: 64Mi
  selectors: {virtualMachineInstanceSelector: {speed: careful}}
"""


@pytest.fixture(scope="module")
def lab(needs_nodes: None) -> Iterator[Lab]:
    """Nodes whose agents read policies from a folder and let one migration go at a time."""
    with Lab(names=("a", "b")) as made:
        folder = made.shared / "policies"
        folder.mkdir()
        (folder / "careful.yaml").write_text(POLICY)
        for name in made.names:
            config = made.node(name).layout.agent_config
            text = config.read_text().replace('"policies_dir" = ""', f'"policies_dir" = "{POLICIES}"')
            options = '"parallelOutboundMigrationsPerNode" = 1\n"completionTimeoutPerGiB" = 77\n'
            text = text.replace("[migration.options]\n", f"[migration.options]\n{options}")
            assert "careful" not in text
            assert options in text
            config.write_text(text)
        made.start_agents()
        yield made


@pytest.fixture
def nodes(lab: Lab) -> Nodes:
    return lab.node("a"), lab.node("b")


@pytest.fixture
def agents(nodes: Nodes) -> Iterator[Agents]:
    with client(nodes[0]) as a, client(nodes[1]) as b:
        yield a, b
        for agent in (a, b):
            for instance in agent.instances.list():
                agent.instances.delete(instance["metadata"]["name"], namespace="default", grace_period_s=0)
            for instance in agent.instances.list():
                until_gone(agent, instance["metadata"]["name"])
        for node in nodes:
            assert leftovers(node) == []


def hmp(node: Node, name: str, command: str) -> str:
    """A command of QEMU's monitor."""
    return node.run("virsh", "qemu-monitor-command", f"default_{name}", "--hmp", command)


def status(view: Migration) -> dict[str, Any]:
    found: dict[str, Any] = to_plain(view.object)["status"]
    return found


def test_a_policy_is_chosen_by_labels_and_shown_with_all_options(
    agents: Agents, bootsector_image: Image
) -> None:
    a, b = agents
    labelled = ticker(bootsector_image).replace("name: tick,", "name: tick, labels: {speed: careful},")
    a.instances.create(labelled)
    running(a, "tick")
    a.migrations.create(migration("tick"), target="b")
    end = migrated(a, "move-tick")
    assert end.report.succeeded, end.report.reason
    state = status(end)["migrationState"]
    assert state["migrationPolicyName"] == "careful"
    options = state["migrationConfiguration"]
    assert (options["maxDowntimeMs"], options["bandwidthPerMigration"]) == (500, str(64 * MIB))
    assert options["completionTimeoutPerGiB"] == 77, "the node's own options fill in"
    assert options["experimental"]["stallDetector"]["stallProgressTimeout"] == 40
    assert "migrationPolicyName" in running(b, "tick")["status"]["migrationState"]
    until_gone(a, "tick")


DISKS = """
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {{name: disks, namespace: default}}
spec:
  terminationGracePeriodSeconds: 0
  domain:
    memory: {{guest: 64Mi}}
    devices:
      autoattachPodInterface: false
      disks:
      - {{name: root, disk: {{bus: virtio}}}}
      - {{name: data, disk: {{bus: virtio}}}}
      - {{name: seed, cdrom: {{bus: sata}}}}
  volumes:
  - {{name: root, containerDisk: {{image: "{image}"}}}}
  - {{name: data, emptyDisk: {{capacity: 64Mi}}}}
  - {{name: seed, cloudInitNoCloud: {{userData: "#cloud-config\\nhostname: disks\\n"}}}}
"""


def write(node: Node, device: str, command: str) -> None:
    """Write as the guest would, through QEMU."""
    for step in (command, "flush"):
        hmp(node, "disks", f'qemu-io -d /machine/peripheral/ua-{device}/virtio-backend "{step}"')


def reads(node: Node, target: str, command: str) -> bool:
    """The pattern is there, in the file of the disk ``target``."""
    listed = dict(
        line.split() for line in node.run("virsh", "-q", "domblklist", "default_disks").splitlines()
    )
    said = node.run("qemu-io", "-r", "-U", "-f", "qcow2", "-c", command, listed[target])
    return said.startswith("read ")


def isos(node: Node) -> list[str]:
    found = node.layout.outside("/var/lib/launcher/instances").rglob("*.iso")
    return sorted(hashlib.sha256(path.read_bytes()).hexdigest() for path in found)


def with_disks(agent: Client, node: Node, image: Image) -> None:
    """A guest with an overlay, a disk of its own and a generated CD; both disks hold a pattern."""
    agent.instances.create(DISKS.format(image=image.reference))
    running(agent, "disks")
    write(node, "root", "write -P 0x5a 256k 128k")
    write(node, "data", "write -P 0xa5 0 24M")
    assert intact(node)


def intact(node: Node) -> bool:
    return reads(node, "vda", "read -P 0x5a 256k 128k") and reads(node, "vdb", "read -P 0xa5 0 24M")


def test_disks_are_copied_encrypted_and_arrive_as_they_were(
    agents: Agents, nodes: Nodes, bootsector_image: Image
) -> None:
    (a, b), (source, target) = agents, nodes
    with_disks(a, source, bootsector_image)
    before = isos(source)
    assert len(before) == 1
    target.rate(60)
    try:
        a.migrations.create(migration("disks"), target="b")
        parameters, seen = "", []
        with closing(a.migrations.watch("move-disks", namespace="default", timeout_s=90)) as views:
            for view in views:
                seen.append(view)
                if view.progress.iteration and not parameters:
                    parameters = hmp(source, "disks", "info migrate_parameters")
    finally:
        target.rate(None)
    end = seen[-1]
    assert end.report.succeeded, end.report.reason
    assert "tls-creds: 'objlibvirt_migrate_tls0'" in parameters
    copying = [v.progress for v in seen if v.progress.disk_total_bytes]
    assert copying, "the copy of the disks is told"
    assert any(0 < p.disk_remaining_bytes < p.disk_total_bytes for p in copying)
    assert end.report.disk_bytes >= 24 * MIB
    assert 0 < end.report.disk_ms < end.report.total_ms
    running(b, "disks")
    assert intact(target)
    assert isos(target) == before
    until_gone(a, "disks")


def test_a_disk_that_fills_up_leaves_the_guest_where_it_is(agents: Agents, nodes: Nodes) -> None:
    (a, _), (source, target) = agents, nodes
    # The image cache and the instances must be one file system: no container disk here.
    lines = DISKS.format(image="").splitlines()
    a.instances.create("\n".join(line for line in lines if "name: root" not in line))
    running(a, "disks")
    write(source, "data", "write -P 0xa5 0 24M")
    folder = "/var/lib/launcher/instances"
    target.run("mount", "-t", "tmpfs", "-o", "size=40m,mode=711", "tmpfs", folder)
    target.rate(60)
    try:
        a.migrations.create(migration("disks", "full"), target="b")
        with closing(a.migrations.watch("full", namespace="default", timeout_s=60)) as views:
            for view in views:
                if view.progress.disk_processed_bytes:
                    target.run("sh", "-c", f"cat /dev/zero > {folder}/ballast || true")
        assert view.report.reason, "it fails and says why"
        assert not view.report.succeeded
        assert reads(source, "vda", "read -P 0xa5 0 24M")
        assert phase(running(a, "disks")) == "Running"
        eventually(
            "the target keeps nothing", lambda: not target.run("virsh", "list", "--all", "--name").strip()
        )
        eventually("nor files", lambda: target.run("ls", folder).split() == ["ballast"])
    finally:
        target.rate(None)
        target.run("umount", "-l", folder)


def test_what_the_target_lacks_is_told_at_once(agents: Agents, nodes: Nodes) -> None:
    (a, _), (source, target) = agents, nodes
    for node, size in ((source, 4), (target, 5)):
        node.run("truncate", "-s", f"{size}M", "/var/lib/launcher/shared.img")
    certificate = target.layout.root.parent / "pki-qemu" / "b" / "server-cert.pem"
    aside = certificate.rename(certificate.with_suffix(".aside"))
    try:
        a.instances.create("""
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {name: wrong, namespace: default}
spec:
  terminationGracePeriodSeconds: 0
  domain:
    memory: {guest: 64Mi}
    devices: {autoattachPodInterface: false, disks: [{name: d, disk: {bus: virtio}}]}
  volumes: [{name: d, hostDisk: {path: /var/lib/launcher/shared.img, type: Disk, shared: true}}]
""")
        running(a, "wrong")
        target.run("sh", "-c", "setsid sleep 30 9<>/var/lib/launcher/shared.img >/dev/null 2>&1 &")
        a.migrations.create(migration("wrong"), target="b")
        end = migrated(a, "move-wrong", timeout_s=20)
        assert "has 5242880 bytes here and 4194304 on the source" in end.report.reason
        assert "has no server-cert.pem" in end.report.reason
        assert "shared.img is written on this node by sleep (" in end.report.reason
        assert phase(running(a, "wrong")) == "Running"
        own = qemu_folder(Path(target.layout.root.parent / "pki"), "a") / "client-key.pem"
        spare = own.rename(own.with_suffix(".aside"))
        try:
            with pytest.raises(MigrationRefused, match=r"client-key\.pem"):
                a.migrations.create(migration("wrong", "again"), target="b")
        finally:
            spare.rename(own)
    finally:
        aside.rename(certificate)
        for node in nodes:
            node.layout.outside("/var/lib/launcher/shared.img").unlink()


def test_one_goes_at_a_time_by_priority_and_who_waits_can_leave(
    agents: Agents, nodes: Nodes, bootsector_image: Image
) -> None:
    a, b = agents
    names = ("one", "two", "three")
    for name in names:
        a.instances.create(ticker(bootsector_image, name))
    for name in names:
        running(a, name)
    nodes[1].rate(8)
    try:
        for name, priority in (("one", ""), ("two", "system-maintenance"), ("three", "system-critical")):
            wanted = migration(name)
            wanted["spec"]["priority"] = priority or "user-triggered"
            a.migrations.create(wanted, target="b")
        with closing(a.migrations.watch("move-one", namespace="default", timeout_s=60)) as views:
            assert any(view.progress.iteration for view in views)
        waiting = a.migrations.get("move-two", namespace="default")
        assert status(waiting)["phase"] == "Pending"
        a.migrations.cancel("move-two", namespace="default")
        left = migrated(a, "move-two", timeout_s=10)
        assert "cancelled" in left.report.reason
    finally:
        nodes[1].rate(None)
    assert migrated(a, "move-one").report.succeeded
    assert migrated(a, "move-three").report.succeeded
    for name in ("one", "three"):
        running(b, name)
        until_gone(a, name)
    assert phase(running(a, "two")) == "Running"


def test_a_target_agent_that_dies_while_it_prepares_is_asked_again(
    agents: Agents, nodes: Nodes, bootsector_image: Image
) -> None:
    (a, b), (_, target) = agents, nodes
    a.instances.create(ticker(bootsector_image))
    running(a, "tick")
    target.stop_agent(signal.SIGKILL)
    a.migrations.create(migration("tick", "early"), target="b")
    target.start_agent()
    end = migrated(a, "early")
    if not end.report.succeeded:  # It was away for longer than it is waited for.
        assert phase(running(a, "tick")) == "Running"
        a.migrations.create(migration("tick", "again"), target="b")
        assert migrated(a, "again").report.succeeded
    running(b, "tick")
    until_gone(a, "tick")


def test_a_guest_that_powers_off_mid_way_is_not_started_anywhere(
    agents: Agents, nodes: Nodes, guest_image: Image
) -> None:
    (a, b), (source, target) = agents, nodes
    a.instances.create(linux(guest_image, "ending"))
    running(a, "ending")
    eventually("the guest is up", lambda: ticks(a, "ending"))
    target.rate(8)
    try:
        a.migrations.create(migration("ending", "overtaken"), target="b")
        with closing(a.migrations.watch("overtaken", namespace="default", timeout_s=60)) as views:
            assert any(view.progress.iteration for view in views)
        hmp(source, "ending", "system_powerdown")
        end = migrated(a, "overtaken", timeout_s=90)
    finally:
        target.rate(None)
    assert not end.report.succeeded
    assert status(end)["conditions"][0]["reason"] == "guest-ended"
    eventually("it ended", lambda: phase(a.instances.get("ending", namespace="default")) == "Succeeded")
    assert b.instances.list() == []
    assert leftovers(target) == []


def test_a_guest_that_is_killed_mid_way_is_reported_on_both_nodes(
    agents: Agents, nodes: Nodes, bootsector_image: Image
) -> None:
    (a, b), (source, target) = agents, nodes
    a.instances.create(ticker(bootsector_image))
    running(a, "tick")
    eventually("the guest ticks", lambda: ticks(a, "tick"))
    target.rate(8)
    try:
        a.migrations.create(migration("tick", "doomed"), target="b")
        with closing(a.migrations.watch("doomed", namespace="default", timeout_s=60)) as views:
            assert any(view.progress.iteration for view in views)
        source.run("kill", "-9", qemu_pid(source, "tick"))
        end = migrated(a, "doomed", timeout_s=60)
    finally:
        target.rate(None)
    assert not end.report.succeeded
    assert status(end)["conditions"][0]["reason"] == "guest-ended"
    eventually(
        "it is known to have failed", lambda: phase(a.instances.get("tick", namespace="default")) == "Failed"
    )
    assert b.instances.list() == []
    assert leftovers(target) == []
