# SPDX-License-Identifier: Apache-2.0
"""What is part of a guest beside its memory and its disks comes along when it is migrated."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from agent_world import client, eventually, leftovers, migrated, migration, running, until_gone
from feature_guests import Shell, guest, kernel_boot, shell

from launcher.cli.client import Client
from launcher.errors import NotFound
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


READ_CLOCK = "\\200\\1\\0\\0\\0\\12\\0\\0\\1\\201"  # TPM2_ReadClock: tag, size, command
# A device wants a command in one write, and printf begins another after a newline, the 12.
CLOCK = (
    f"printf '{READ_CLOCK}' >/tmp/command; exec 3<>/dev/tpm0; cat /tmp/command >&3; "
    "dd bs=64 count=1 <&3 2>/dev/null | od -An -v -tu1; exec 3>&-"
)
KEPT = "/var/lib/launcher/kept"


def resets(inside: Shell) -> int:
    """How often the TPM was reset in its life (resetCount of TPM2_ReadClock)."""
    answer = inside.run(CLOCK).split()
    assert len(answer) == 35, answer
    return int.from_bytes(bytes(map(int, answer[26:30])), "big")


def kept(node: Node) -> list[str]:
    """What the node keeps of instances, here or not."""
    script = f"find {KEPT} /var/lib/libvirt/swtpm -type f ! -name .lock 2>/dev/null | sort"
    return node.run("sh", "-c", script).splitlines()


def variables(node: Node, uid: str) -> Path:
    """Where the UEFI variables of an instance lie on a node."""
    return node.layout.outside(f"/var/lib/launcher/instances/{uid}/nvram.fd")


def test_state_comes_along_and_outlives_the_instance(
    agents: Agents, nodes: tuple[Node, Node], uefi_image: Image
) -> None:
    a, b = agents
    domain = {
        "firmware": {
            "bootloader": {"efi": {"secureBoot": False, "persistent": True}},
            "kernelBoot": kernel_boot(uefi_image, uefi=True),
        }
    }
    manifest = guest(
        "moves", memory="256Mi", domain=domain, devices={"downwardMetrics": {}, "tpm": {"persistent": True}}
    )
    manifest["spec"]["domain"]["devices"]["disks"].append({"name": "dm", "disk": {"bus": "virtio"}})
    manifest["spec"]["volumes"].append({"name": "dm", "downwardMetrics": {}})
    uid = a.instances.create(manifest)["metadata"]["uid"]
    running(a, "moves")
    template = nodes[0].layout.outside("/usr/share/OVMF/OVMF_VARS_4M.fd").read_bytes()
    with shell(a, "moves") as inside:
        before = resets(inside)
    written = variables(nodes[0], uid).read_bytes()
    assert written != template, "the firmware wrote variables of its own"

    a.migrations.create(migration("moves", "out"), target="b")
    out = migrated(a, "out")
    assert out.report.succeeded, out.report.reason
    running(b, "moves")
    until_gone(a, "moves")
    assert variables(nodes[1], uid).read_bytes() == written
    assert kept(nodes[0]) == [], "nothing is left on the source"

    node_of_metrics = "tr -d '\\000' </dev/vda | grep -A1 HostName | grep -o '>[ab]<'"
    keys_up = "exec 3<>/dev/virtio-ports/org.github.vhostmd.1; printf 'GET /metrics/XML\\n\\n' >&3; "
    read = 'while read -r line <&3 && [ -n "$line" ]; do echo "$line"; done; exec 3>&-'
    with shell(b, "moves", up=True) as there:
        assert "<value>b</value>" in there.run(keys_up + read)
        eventually(
            "the disk is filled on the target",
            lambda: there.run(f"echo 3 >/proc/sys/vm/drop_caches; {node_of_metrics}") == ">b<",
        )

    # The next instance of the name goes on with what firmware and TPM remember.
    b.instances.delete("moves", namespace="default")
    until_gone(b, "moves")
    assert [path.removeprefix(f"{KEPT}/") for path in kept(nodes[1])] == [
        "default/moves/nvram.fd",
        "default/moves/tpm/tpm2/tpm2-00.permall",
    ]
    waiting = nodes[1].layout.outside(f"{KEPT}/default/moves/nvram.fd")
    assert waiting.read_bytes() == written
    same = waiting.stat().st_ino
    uid = b.instances.create(manifest)["metadata"]["uid"]
    running(b, "moves")
    with shell(b, "moves") as again:
        assert resets(again) > before
    assert variables(nodes[1], uid).stat().st_ino == same
    b.instances.delete("moves", namespace="default", remove_persistent_state=True)
    until_gone(b, "moves")
    assert kept(nodes[1]) == []
    with pytest.raises(NotFound):
        b.instances.delete("moves", namespace="default", remove_persistent_state=True)
