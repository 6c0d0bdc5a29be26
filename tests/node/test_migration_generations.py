# SPDX-License-Identifier: Apache-2.0
"""Nodes of two generations: libvirt and QEMU of this machine, and those of another Debian release.

Run by `make test-matrix`, which prints a table; the other release is fetched once and kept in the cache.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field

import pytest
from agent_world import (
    client,
    eventually,
    leftovers,
    linux,
    migrated,
    migration,
    phase,
    restarting,
    running,
    ticks,
    until_gone,
)

from launcher.cli.client import Client
from launcher.lab import system
from launcher.lab.image import Image
from launcher.lab.lab import Lab
from launcher.lab.node import Node
from launcher.rpc.struct import to_plain
from launcher.v1.migrations_pb2 import Migration

pytestmark = [pytest.mark.node, pytest.mark.matrix]

RELEASE = "trixie"
BASELINE = "pc-q35-7.2"
"""A machine that QEMU of both generations has."""
CPU = "Nehalem"
"""A model that both can emulate whole. What host-model stands for without KVM has lost features since."""
POLICY = """
apiVersion: migrations.kubevirt.io/v1alpha1
kind: MigrationPolicy
metadata: {{name: {name}}}
spec:
  bandwidthPerMigration: 16Mi
  completionTimeoutPerGiB: {timeout}
  allowPostCopy: {post_copy}
  selectors: {{virtualMachineInstanceSelector: {{way: {name}}}}}
"""
WAYS = {"pre-copy": (600, "false"), "post-copy": (2, "true")}
SETTLED_S = 5.0
"""So long after the switch QEMU's main thread at the target has the pages that it needs for itself. While it
waits for one, libvirt gets no answer, and a stream that breaks can be resumed only over a second monitor."""
COLUMNS = ("FROM", "TO", "WAY", "STREAM", "OUTCOME", "TOTAL S", "DOWNTIME MS", "PASSES", "REMARKS")


@dataclass
class Table:
    """What is printed at the end."""

    rows: list[tuple[str, ...]] = field(default_factory=list)

    def add(
        self, source: Node, target: Node, way: str, stream: str, end: Migration, remarks: str = ""
    ) -> None:
        report = end.report
        outcome = "succeeded" if report.succeeded else "failed"
        numbers = (f"{report.total_ms / 1000:.1f}", str(report.downtime_ms), str(report.iterations))
        self.rows.append((source.name, target.name, way, stream, outcome, *numbers, remarks))

    def text(self) -> str:
        lines = (COLUMNS, *self.rows)
        widths = [max(len(line[i]) for line in lines) for i in range(len(COLUMNS))]
        return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)


@pytest.fixture(scope="module")
def table(request: pytest.FixtureRequest) -> Iterator[Table]:
    made = Table()
    yield made
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        print(f"\n\n{made.text()}\n")


@pytest.fixture(scope="module", params=["plain", "tls"])
def stream(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture(scope="module")
def lab(needs_nodes: None, stream: str) -> Iterator[Lab]:
    """Nodes ``old`` (this machine's programs) and ``new``, with one baseline for both."""
    with Lab(names=("old", "new"), systems={"new": system.debian(RELEASE)}) as made:
        policies = made.shared / "policies"
        policies.mkdir()
        for name, (timeout, post_copy) in WAYS.items():
            text = POLICY.format(name=name, timeout=timeout, post_copy=post_copy)
            (policies / f"{name}.yaml").write_text(text)
        off = str(stream == "plain").lower()
        changes = (
            ('"policies_dir" = ""', f'"policies_dir" = "{policies}"'),
            (
                "[migration.options]\n",
                f'[migration.options]\n"disableTLS" = {off}\n',
            ),
            ("[machines]\n", f'[machines]\n"q35" = "{BASELINE}"\n'),
            ('"rescue_monitor" = false', '"rescue_monitor" = true'),
            ('"model" = "host-model"', f'"model" = "{CPU}"'),
        )
        for name in made.names:
            config = made.node(name).layout.agent_config
            text = config.read_text()
            for before, after in changes:
                assert before in text
                text = text.replace(before, after)
            config.write_text(text)
        made.start_agents()
        yield made


@pytest.fixture(params=["old-new", "new-old"])
def nodes(request: pytest.FixtureRequest, lab: Lab) -> tuple[Node, Node]:
    source, target = request.param.split("-")
    return lab.node(source), lab.node(target)


@pytest.fixture
def agents(nodes: tuple[Node, Node]) -> Iterator[tuple[Client, Client]]:
    with client(nodes[0]) as source, client(nodes[1]) as target:
        yield source, target
        for agent in (source, target):
            for instance in agent.instances.list():
                agent.instances.delete(instance["metadata"]["name"], namespace="default", grace_period_s=0)
            for instance in agent.instances.list():
                until_gone(agent, instance["metadata"]["name"])
        for node in nodes:
            assert leftovers(node) == []


def guest(image: Image, way: str, *, busy: bool) -> str:
    """A guest that writes 24 MiB over and over, or next to nothing; at 16 MiB/s the first will not end."""
    text = linux(image, "moving", cmdline="dirty=24,100" if busy else "dirty=4,2")
    text = text.replace("    devices:\n", "    devices:\n      autoattachMemBalloon: false\n")
    return text.replace("name: moving,", f"name: moving, labels: {{way: {way}}},")


def moved(view: Migration) -> bool:
    """The guest runs on the target, without all of its memory."""
    mode = to_plain(view.object)["status"].get("migrationState", {}).get("mode")
    return bool(mode == "PostCopy")


def interrupted(view: Migration) -> bool:
    """The stream broke, and the source knows."""
    conditions = to_plain(view.object)["status"].get("conditions", ())
    return any(condition["type"] == "PostCopyInterrupted" for condition in conditions)


def runs(node: Node) -> bool:
    """The guest runs here. Cut earlier, the two halves cannot be put together by QEMU before 10.2."""
    return "running" in node.run("virsh", "domstate", "default_moving")


@pytest.mark.parametrize("way", list(WAYS))
def test_a_guest_moves_between_generations(
    nodes: tuple[Node, Node],
    agents: tuple[Client, Client],
    guest_image: Image,
    table: Table,
    way: str,
    stream: str,
) -> None:
    (source, target), (here, there), name = nodes, agents, way
    here.instances.create(guest(guest_image, way, busy=way == "post-copy"))
    vmi = running(here, "moving")
    assert vmi["status"]["machine"]["type"] == BASELINE
    eventually("the guest is up", lambda: ticks(here, "moving"))
    last = ticks(here, "moving")[-1]
    here.migrations.create(migration("moving", name), target=target.name)
    parameters = ""
    with closing(here.migrations.watch(name, namespace="default", timeout_s=90)) as views:
        for view in views:
            if view.progress.iteration and not parameters:
                parameters = source.run(
                    "virsh", "qemu-monitor-command", "default_moving", "--hmp", "info migrate_parameters"
                )
    table.add(source, target, way, stream, view)
    assert view.report.succeeded, view.report.reason
    assert view.report.post_copy is (way == "post-copy"), view.report.steps
    assert ("objlibvirt_migrate_tls0" in parameters) is (stream == "tls")
    after = running(there, "moving")
    assert after["status"]["machine"]["type"] == BASELINE
    eventually("the guest ticks on", lambda: any(tick > last for tick in ticks(there, "moving")))
    until_gone(here, "moving")


def test_an_interrupted_post_copy_is_put_together_again(
    nodes: tuple[Node, Node], agents: tuple[Client, Client], guest_image: Image, table: Table, stream: str
) -> None:
    (source, target), (here, there), name = nodes, agents, "recovery"
    here.instances.create(guest(guest_image, "post-copy", busy=True))
    running(here, "moving")
    eventually("the guest is up", lambda: ticks(here, "moving"))
    target.rate(24)
    with restarting(target) as ends:
        try:
            here.migrations.create(migration("moving", name), target=target.name)
            ran: float | None = None
            cut = False
            with closing(here.migrations.watch(name, namespace="default", timeout_s=300)) as views:
                for view in views:
                    if ran is None and moved(view) and runs(target):
                        ran = time.monotonic()
                    if ran is not None and not cut and time.monotonic() - ran > SETTLED_S:
                        target.set_link(False)
                        cut = True
                    if interrupted(view):
                        target.set_link(True)
                        target.rate(None)
        finally:
            target.set_link(True)
            target.rate(None)
        resumes = sum(step.action == "resume post-copy" for step in view.report.steps)
        past = sum(step.action == "resume post-copy by QEMU" for step in view.report.steps)
        remarks = f"asked libvirt {resumes}, QEMU {past} times; libvirtd there ended {len(ends)} times"
        table.add(source, target, "recovery", stream, view, remarks)
        assert cut
        assert view.report.succeeded, (view.report.reason, view.report.steps)
        running(there, "moving")
        eventually("the guest ticks on", lambda: ticks(there, "moving"))
        until_gone(here, "moving")


def test_a_machine_that_the_older_node_lacks_is_told_before_anything_moves(
    lab: Lab, guest_image: Image
) -> None:
    with client(lab.node("new")) as new:
        newer = linux(guest_image, "newer").replace(
            "  domain:\n", "  domain:\n    machine: {type: pc-q35-10.0}\n"
        )
        new.instances.create(newer)
        running(new, "newer")
        try:
            new.migrations.create(migration("newer"), target="old")
            end = migrated(new, "move-newer", timeout_s=20)
            assert not end.report.succeeded
            assert "does not know the machine pc-q35-10.0" in end.report.reason
            assert phase(running(new, "newer")) == "Running"
        finally:
            new.instances.delete("newer", namespace="default", grace_period_s=0)
            until_gone(new, "newer")
