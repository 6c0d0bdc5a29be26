# SPDX-License-Identifier: Apache-2.0
"""Migrations over networks of their own, encrypted: chosen, left when they die, and over none at all."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import pytest
from agent_world import client, eventually, leftovers, migrated, migration, phase, running, until_gone

from launcher.cli.client import Client
from launcher.errors import NotFound
from launcher.lab.lab import Lab
from launcher.lab.node import Node
from launcher.migration.recording import read_recording
from launcher.rpc.struct import to_plain

pytestmark = pytest.mark.node
MIB = 1 << 20
LINK = "fast0"
CAP = ("tbf", "rate", "8mbit", "burst", "256kb", "latency", "20ms")
DATA_MIB = 12
METRICS = "127.0.0.1:9090"
GUEST = """
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {name: mover, namespace: default}
spec:
  terminationGracePeriodSeconds: 0
  domain:
    memory: {guest: 64Mi}
    devices: {autoattachPodInterface: false, disks: [{name: data, disk: {bus: virtio}}]}
  volumes: [{name: data, emptyDisk: {capacity: 64Mi}}]
"""
Edit = Callable[[str, str], str]
"""Of a node's name and the text of its agent's configuration."""


@pytest.fixture
def world(needs_nodes: None) -> Iterator[Callable[[Edit], tuple[Node, Node]]]:
    """Two nodes with a link of their own beside the lab's, and agents whose configuration a test changes."""
    with ExitStack() as stack:

        def make(edit: Edit) -> tuple[Node, Node]:
            lab = stack.enter_context(Lab(names=("a", "b")))
            a, b = lab.node("a"), lab.node("b")
            other = ("peer", "name", LINK, "netns", str(b.namespaces.pid))
            a.namespaces.run_net("ip", "link", "add", LINK, "type", "veth", *other)
            for number, node in ((1, a), (2, b)):
                node.run("ip", "addr", "add", f"10.98.0.{number}/24", "dev", LINK)
                node.run("ip", "addr", "add", f"fd98::{number}/64", "dev", LINK, "nodad")
                node.run("ip", "link", "set", LINK, "up")
                conf = node.layout.root / "etc" / "libvirtd.conf"
                lines = conf.read_text().splitlines(keepends=True)
                conf.write_text("".join(line for line in lines if not line.startswith("listen_addr")))
                node.stop_libvirtd()
                node.start_libvirtd()
                config = node.layout.agent_config
                config.write_text(edit(node.name, config.read_text()))
            lab.start_agents()
            return a, b

        yield make


def with_networks(chosen: str) -> Edit:
    """``fast`` by the name of its link, ``six`` by its addresses; the one that is ``chosen``."""

    def edit(_node: str, text: str) -> str:
        networks = f'[migration.networks]\n"fast" = "{LINK}"\n"six" = "fd98::/64"\n'
        text = text.replace("[migration.networks]\n", networks)
        return text.replace("[migration.options]\n", f'[migration.options]\n"network" = "{chosen}"\n')

    return edit


def begin(agent: Client, node: Node) -> None:
    """A guest whose disk has something to copy."""
    agent.instances.create(GUEST)
    running(agent, "mover")
    command = f"write -P 0xa5 0 {DATA_MIB}M"
    for step in (command, "flush"):
        text = f'qemu-io -d /machine/peripheral/ua-data/virtio-backend "{step}"'
        node.run("virsh", "qemu-monitor-command", "default_mover", "--hmp", text)


def received(node: Node, link: str) -> int:
    return int(node.run("cat", f"/sys/class/net/{link}/statistics/rx_bytes"))


def scrape(node: Node) -> str:
    code = f"import urllib.request as u; print(u.urlopen('http://{METRICS}/metrics').read().decode())"
    return node.run(sys.executable, "-c", code)


def move(source: Node, target: Node, name: str) -> None:
    with client(source) as agent:
        agent.migrations.create(migration("mover", name), target=target.name)
        end = migrated(agent, name)
        assert end.report.succeeded, end.report.reason
        until_gone(agent, "mover")
    with client(target) as agent:
        assert phase(running(agent, "mover")) == "Running"
    assert leftovers(source) == []


def test_the_stream_and_copied_disks_take_the_network_that_was_chosen(
    world: Callable[[Edit], tuple[Node, Node]],
) -> None:
    a, b = world(lambda node, text: with_networks("fast" if node == "a" else "six")(node, text))
    with client(a) as agent:
        begin(agent, a)
    for source, target in ((a, b), (b, a)):
        before = {link: received(target, link) for link in (LINK, "eth0")}
        move(source, target, f"to-{target.name}")
        grown = {link: received(target, link) - then for link, then in before.items()}
        assert grown[LINK] > DATA_MIB * MIB
        assert grown["eth0"] < 2 * MIB, "what the agents say to each other"


def test_a_network_that_dies_is_left_for_the_usual_one(world: Callable[[Edit], tuple[Node, Node]]) -> None:
    fast = with_networks("fast")
    a, b = world(lambda node, text: fast(node, text).replace('"metrics" = ""', f'"metrics" = "{METRICS}"'))
    scraped = ""
    with client(a) as agent:
        begin(agent, a)
        a.run("tc", "qdisc", "add", "dev", LINK, "root", *CAP)
        agent.migrations.create(migration("mover", "over"), target="b")
        phases: list[str] = []
        with closing(agent.migrations.watch("over", namespace="default", timeout_s=120)) as views:
            for view in views:
                status = to_plain(view.object)["status"]
                if status["phase"] not in phases[-1:]:
                    phases.append(status["phase"])
                if view.progress.processed_bytes > MIB and not scraped:
                    scraped = scrape(a)
                    b.run("ip", "link", "set", LINK, "down")
        assert view.report.succeeded, view.report.reason
        assert phases[-5:] == ["Running", "PreparingTarget", "TargetReady", "Running", "Succeeded"]
        (first,) = view.report.earlier
        assert not first.succeeded
        (retried,) = status["conditions"]
        assert (retried["type"], retried["reason"]) == ("Retried", "link")
        recorded = [read_recording(agent.migrations.recording("over", attempt=n)).end for n in (1, 2, 0)]
        assert [end.phase for end in recorded if end is not None] == ["Failed", "Succeeded", "Succeeded"]
        with pytest.raises(NotFound, match="attempt"):
            agent.migrations.recording("over", attempt=3)
        assert (
            'kubevirt_vmi_migration_data_remaining_bytes{name="mover",namespace="default",node="a"}'
            in scraped
        )
        assert 'kubevirt_vmi_migrations_in_running_phase{node="a"} 1.0' in scraped
        counted = 'launcher_migrations_total{cause="",node="a",outcome="succeeded"} 1.0'
        eventually("it is counted", lambda: counted in scrape(a))
        until_gone(agent, "mover")
    with client(b) as agent:
        running(agent, "mover")


def socket_only(node: str, text: str) -> str:
    """No network anywhere; migrations from ``a`` are not encrypted."""
    found = next(line for line in text.splitlines() if line.startswith('"socket" ='))
    root = found.split('"')[3].removesuffix(f"/{node}/launcherd.sock")
    other = "b" if node == "a" else "a"
    new = {
        '"tcp"': '"tcp" = ""',
        '"migration_uri"': f'"migration_uri" = "qemu+unix:///system?socket={root}/{node}/run/libvirt-sock"',
        '"address"': f'"address" = "unix:{root}/shared"',
        f'"{other}"': f'"{other}" = "unix:{root}/{other}/launcherd.sock"',
        "[migration.options]": '[migration.options]\n"disableTLS" = ' + ("true" if node == "a" else "false"),
    }
    return "\n".join(new.get(line.partition(" =")[0], line) for line in text.splitlines()) + "\n"


def test_nodes_on_one_machine_need_no_network(world: Callable[[Edit], tuple[Node, Node]]) -> None:
    a, b = world(socket_only)
    with client(a) as agent:
        begin(agent, a)
    before = {link: received(b, link) for link in (LINK, "eth0")}
    move(a, b, "there")
    with client(b) as agent:
        agent.migrations.create(migration("mover", "back"), target="a")
        end = migrated(agent, "back")
        assert "libvirt copies no disks over sockets when it encrypts" in end.report.reason
        agent.instances.delete("mover", namespace="default", grace_period_s=0)
        until_gone(agent, "mover")
        agent.instances.create(
            GUEST.replace("{name: data, disk: {bus: virtio}}", "").partition("  volumes")[0]
        )
        running(agent, "mover")
    move(b, a, "encrypted")
    assert all(received(b, link) - then < MIB for link, then in before.items())
    shared = a.layout.root.parent / "shared"
    assert [path for path in shared.iterdir() if path.is_socket()] == []
