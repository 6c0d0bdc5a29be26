# SPDX-License-Identifier: Apache-2.0
"""What is part of a guest beside its memory and its disks comes along when it is migrated."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from agent_world import client, eventually, leftovers, migrated, migration, running, until_gone
from feature_guests import guest, kernel_boot, shell

from launcher.cli.client import Client
from launcher.lab.image import Image, uefi_guest
from launcher.lab.lab import Lab
from launcher.lab.node import Node

pytestmark = pytest.mark.node
Agents = tuple[Client, Client]


@pytest.fixture(scope="module")
def nodes(lab_with_agents: Lab) -> tuple[Node, Node]:
    return lab_with_agents.node("a"), lab_with_agents.node("b")


@pytest.fixture(scope="module")
def uefi_image(needs_nodes: None) -> Image:
    return uefi_guest()


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


def variables(node: Node, uid: str) -> bytes:
    """The UEFI variables of an instance as they lie on a node."""
    return node.layout.outside(f"/var/lib/launcher/instances/{uid}/nvram.fd").read_bytes()


def test_uefi_variables_and_downward_metrics_come_along(
    agents: Agents, nodes: tuple[Node, Node], uefi_image: Image
) -> None:
    a, b = agents
    domain = {
        "firmware": {
            "bootloader": {"efi": {"secureBoot": False}},
            "kernelBoot": kernel_boot(uefi_image, uefi=True),
        }
    }
    manifest = guest("moves", memory="256Mi", domain=domain, devices={"downwardMetrics": {}})
    manifest["spec"]["domain"]["devices"]["disks"].append({"name": "dm", "disk": {"bus": "virtio"}})
    manifest["spec"]["volumes"].append({"name": "dm", "downwardMetrics": {}})
    uid = a.instances.create(manifest)["metadata"]["uid"]
    running(a, "moves")
    template = nodes[0].layout.outside("/usr/share/OVMF/OVMF_VARS_4M.fd").read_bytes()
    with shell(a, "moves") as inside:
        inside.run("true")
    written = variables(nodes[0], uid)
    assert written != template, "the firmware wrote variables of its own"

    a.migrations.create(migration("moves", "out"), target="b")
    out = migrated(a, "out")
    assert out.report.succeeded, out.report.reason
    running(b, "moves")
    until_gone(a, "moves")
    assert variables(nodes[1], uid) == written

    node_of_metrics = "tr -d '\\000' </dev/vda | grep -A1 HostName | grep -o '>[ab]<'"
    keys_up = "exec 3<>/dev/virtio-ports/org.github.vhostmd.1; printf 'GET /metrics/XML\\n\\n' >&3; "
    read = 'while read -r line <&3 && [ -n "$line" ]; do echo "$line"; done; exec 3>&-'
    with shell(b, "moves", up=True) as there:
        assert "<value>b</value>" in there.run(keys_up + read)
        eventually(
            "the disk is filled on the target",
            lambda: there.run(f"echo 3 >/proc/sys/vm/drop_caches; {node_of_metrics}") == ">b<",
        )
