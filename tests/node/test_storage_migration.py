# SPDX-License-Identifier: Apache-2.0
"""Volumes of a guest that moves: the target makes the very same images, on the very same base."""

from __future__ import annotations

import json
import queue
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from agent_world import client, eventually, leftovers, migrated, migration, running, until_gone
from feature_guests import guest, kernel_boot, shell
from storage_images import tar, write_layout
from storage_world import MIB, STATE, inside, ready, remove_all

from launcher.cli.client import Client
from launcher.lab.image import Image
from launcher.lab.lab import Lab
from launcher.lab.node import Node
from launcher.v1.types_pb2 import Companions, KeyedData

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
            remove_all(agent)
        for node in nodes:
            assert leftovers(node) == []


def sums(node: Node, uid: str) -> dict[str, str]:
    """The hashes of what was made for the instance and does not change, by name."""
    folder = f"{STATE}/instances/{uid}/disks"
    lines = node.run("sh", "-c", f"cd {folder} && sha256sum *.iso *.base").splitlines()
    return {name: digest for digest, name in (line.split() for line in lines)}


def test_the_target_has_the_same_media_and_the_same_base(
    agents: Agents, nodes: tuple[Node, Node], lab_with_agents: Lab, guest_image: Image
) -> None:
    (a, b), shared = agents, lab_with_agents.shared
    write_layout(shared / "image", tar(("disk/d", b"first".ljust(4 * MIB, b"1"))))
    manifest = guest(
        "media",
        memory="160Mi",
        domain={"firmware": {"kernelBoot": kernel_boot(guest_image)}},
        devices={
            "disks": [
                {"name": "seed", "cdrom": {"bus": "scsi"}},
                {"name": "drive", "disk": {"bus": "virtio", "readonly": True}},
                {"name": "conf", "disk": {"bus": "virtio"}},
                {"name": "image", "disk": {"bus": "virtio"}},
            ]
        },
        volumes=[
            {"name": "seed", "cloudInitNoCloud": {"secretRef": {"name": "login"}}},
            {"name": "drive", "cloudInitConfigDrive": {"userData": "x"}},
            {"name": "conf", "configMap": {"name": "settings"}},
            {"name": "image", "containerDisk": {"image": f"oci:{inside(shared)}/image:latest"}},
        ],
    )
    companions = Companions(
        secrets={"login": KeyedData(data={"userdata": b"#cloud-config\n"})},
        config_maps={"settings": KeyedData(data={"key": b"value"})},
    )
    uid = a.instances.create(manifest, companions)["metadata"]["uid"]
    ready(a, "media")
    before = sums(nodes[0], uid)
    assert set(before) == {"seed.iso", "drive.iso", "conf.iso", "image.base"}
    with shell(a, "media") as within:
        within.run("printf changed | dd of=/dev/vdb conv=notrunc,fsync")
        within.run("printf written | dd of=/dev/vdc bs=1 seek=2097152 conv=notrunc,fsync")
    _move_tag(shared / "image")
    a.migrations.create(migration("media", "out"), target="b")
    out = migrated(a, "out")
    assert out.report.succeeded, out.report.reason
    until_gone(a, "media")
    running(b, "media")
    after = sums(nodes[1], uid)
    assert {name: after[name] for name in ("seed.iso", "drive.iso", "image.base")} == {
        name: before[name] for name in ("seed.iso", "drive.iso", "image.base")
    }
    eventually(
        "the console is there", lambda: b.instances.console_log("media", namespace="default") is not None
    )
    assert within_target(b) == "changed first written"


def within_target(agent: Client) -> str:
    """What the guest reads of the disk that it wrote to itself, of the base, and of its overlay."""

    keys: queue.Queue[bytes | None] = queue.Queue()
    console = agent.instances.console("media", iter(keys.get, None), namespace="default")
    keys.put(
        b'echo 3 >/proc/sys/vm/drop_caches; echo [["$(head -c 7 /dev/vdb) $(head -c 5 /dev/vdc) '
        b'$(dd if=/dev/vdc bs=1 skip=2097152 count=7 2>/dev/null)"]"]"\n'
    )
    seen = b""
    for data in console:
        seen += data
        if b"]]" in seen:
            break
    keys.put(None)
    console.close()
    return seen.rpartition(b"[[")[2].partition(b"]]")[0].decode()


def _move_tag(layout: Path) -> None:
    """The tag stands for another image from now on; the first is still there, by its digest."""
    other = layout.with_name("other")
    write_layout(other, tar(("disk/d", b"other".ljust(4 * MIB, b"2"))))

    for blob in (other / "blobs" / "sha256").iterdir():
        shutil.copy(blob, layout / "blobs" / "sha256" / blob.name)
    index, new = (json.loads((folder / "index.json").read_text()) for folder in (layout, other))
    (old,) = index["manifests"]
    old["annotations"]["org.opencontainers.image.ref.name"] = "old"
    index["manifests"] += new["manifests"]
    (layout / "index.json").write_text(json.dumps(index))
