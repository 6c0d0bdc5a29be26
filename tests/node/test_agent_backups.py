# SPDX-License-Identifier: Apache-2.0
"""Backups of real guests: full and incremental ones put together are the disk, pushed or pulled by NBD."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from agent_world import client, eventually, leftovers, running, until
from backup_world import MIB, block, disks_guest, raw_content, write
from feature_guests import Object, shell
from storage_world import files, inside, remove_all

from launcher.cli.client import Client
from launcher.errors import Conflict, InvalidRequest, NotFound, StorageError, Unavailable, WrongPhase
from launcher.lab.image import Image
from launcher.lab.lab import Lab
from launcher.lab.layout import SHARED_MOUNT
from launcher.lab.node import Node
from launcher.v1.backups_pb2 import Copy
from launcher.v1.types_pb2 import ClaimBinding, Companions

pytestmark = pytest.mark.node

EMPTY: Object = {"emptyDisk": {"capacity": "8Mi"}}


@pytest.fixture(scope="module")
def lab(needs_nodes: None) -> Iterator[Lab]:
    with Lab(names=("a",)) as made:
        made.start_agents()
        yield made


@pytest.fixture(scope="module")
def node(lab: Lab) -> Node:
    return lab.node("a")


@pytest.fixture
def agent(node: Node) -> Iterator[Client]:
    before = files(node)
    with client(node) as agent:
        yield agent
        remove_all(agent)
        assert leftovers(node) == []
        assert files(node) == before


def answers(agent: Client) -> bool:
    try:
        agent.node()
    except Unavailable:
        return False
    return True


def restart(node: Node, agent: Client) -> None:
    node.stop_agent(signal.SIGKILL)
    node.start_agent()
    eventually("the agent answers", lambda: answers(agent))


def here(lab: Lab, path: str) -> Path:
    """Where a file of the shared folder is outside of the nodes."""
    return lab.shared / Path(path).relative_to(SHARED_MOUNT)


def chained(lab: Lab, copies: list[Copy], volume: str) -> bytes:
    """A full backup and those that go on from it, put together."""
    paths = [here(lab, v.file) for copy in copies for v in copy.volumes if v.volume == volume]
    for base, top in pairwise(paths):
        argv = ["qemu-img", "rebase", "-u", "-f", "qcow2", "-F", "qcow2", "-b", str(base), str(top)]
        subprocess.run(argv, check=True, capture_output=True)
    return raw_content(paths[-1], "qcow2")


def volumes(vmi: Object) -> dict[str, Object]:
    return {volume["name"]: volume for volume in vmi["status"].get("volumeStatus", [])}


def add_store(agent: Client, node: Node, path: str) -> None:
    """Add the utility volume ``store`` at ``path``; at first that is on a file system that is only read."""
    node.run("mount", "-t", "tmpfs", "-o", "ro", "none", path)
    vmi = agent.instances.get("back")
    vmi["spec"]["utilityVolumes"] = [{"name": "store", "claimName": "backups", "type": "Backup"}]
    claims = Companions(claims=[ClaimBinding(claim="backups", path=path)])
    assert volumes(agent.instances.update(vmi, claims))["store"]["phase"] == "Pending"
    wrong = until(agent, "back", lambda vmi: "reason" in volumes(vmi)["store"])
    assert volumes(wrong)["store"]["reason"] == "VolumeNotPermitted"
    node.run("umount", path)
    until(agent, "back", lambda vmi: volumes(vmi)["store"]["phase"] == "Ready")


def test_full_and_incremental_backups_are_the_disk(
    agent: Client, node: Node, lab: Lab, guest_image: Image
) -> None:
    disk, target = lab.shared / "tracked.img", lab.shared / "backups"
    disk.write_bytes(b"kept\n".ljust(5) * (MIB // 5) + bytes(8 * MIB - MIB // 5 * 5))
    before = disk.read_bytes()
    target.mkdir(mode=0o755)
    mine = {"hostDisk": {"path": inside(disk), "type": "Disk"}}
    agent.instances.create(disks_guest(guest_image, "back", {"mine": mine, "own": EMPTY}, tracked=True))
    vmi = running(agent, "back")
    assert vmi["status"]["changedBlockTracking"]["state"] == "Enabled"
    assert disk.read_bytes() == before  # what tracks the changes has not touched the image

    add_store(agent, node, inside(target))

    def push(name: str, incremental: str = "") -> Copy:
        folder, volume = (inside(target), "") if incremental else ("", "store")
        copy = agent.backups.begin_backup(
            "back", backup=name, directory=folder, destination=volume, incremental=incremental
        )
        done = agent.backups.wait(copy, timeout_s=60)
        assert done.phase == "Succeeded", done.message
        return done

    with shell(agent, "back") as guest:
        for device in ("vda", "vdb"):
            write(guest, device, "one", 2)
        full = push("full")
        status = agent.instances.get("back")["status"]["changedBlockTracking"]["backupStatus"]
        assert (status["backupName"], status["completed"]) == ("full", True)
        assert status["checkpointName"] == full.checkpoint
        for device in ("vda", "vdb"):
            write(guest, device, "two", 3)
        second = push("second", full.checkpoint)
        # libvirt and the agent go and come back; the checkpoints are known.
        node.stop_libvirtd(signal.SIGKILL)
        node.start_libvirtd()
    restart(node, agent)
    eventually("libvirt is back", lambda: agent.node().libvirt_connected)
    with shell(agent, "back", up=True) as guest:
        for device in ("vda", "vdb"):
            write(guest, device, "three", 2)
        # As if libvirt had lost what it knows: it is told again, and the bitmaps are still there.
        node.run("virsh", "checkpoint-delete", "default_back", second.checkpoint, "--metadata")
        third = push("third", second.checkpoint)
        found = {c.name: c.invalid for c in agent.backups.checkpoints("back")}
        assert found == {full.checkpoint: "", second.checkpoint: "", third.checkpoint: ""}

        for volume in ("mine", "own"):
            small = next(v.file for v in second.volumes if v.volume == volume)
            assert here(lab, small).stat().st_size < 4 * MIB
            data = chained(lab, [full, second, third], volume)
            assert (block(data, 2), block(data, 3)) == ("three", "two")
            assert data[:MIB] == (before[:MIB] if volume == "mine" else bytes(MIB))
        assert chained(lab, [full, second, third], "mine") == disk.read_bytes()

        pulled(agent, node, third.checkpoint)

    for wrong, error, words in (
        ({"incremental": "nothing"}, NotFound, "nothing"),
        ({"directory": "/nowhere"}, StorageError, "/nowhere"),
        ({"directory": "relative"}, InvalidRequest, "absolute path"),
        ({"volumes": ["other"]}, InvalidRequest, "not tracked"),
        ({"mode": "pull", "directory": "", "listen": "here"}, InvalidRequest, "ADDRESS:PORT"),
    ):
        with pytest.raises(error, match=words):
            agent.backups.begin_backup("back", **{"directory": inside(target), **wrong})  # type: ignore[arg-type]
    entry = agent.instances.get("back")
    del entry["spec"]["utilityVolumes"]
    assert "store" not in volumes(agent.instances.update(entry))
    agent.backups.delete_checkpoint("back", full.checkpoint)
    assert full.checkpoint not in [c.name for c in agent.backups.checkpoints("back")]
    remove_all(agent)
    assert block(disk.read_bytes(), 2) == "three"
    subprocess.run(["rm", "-r", target, disk], check=True)


def pulled(agent: Client, node: Node, since: str) -> None:
    """Pull what changed since a checkpoint by NBD, across the death of the agent; abort another one."""
    with shell(agent, "back", up=True) as guest:
        write(guest, "vdb", "four", 5)
        copy = agent.backups.begin_backup(
            "back", backup="pull", mode="pull", incremental=since, volumes=["own"]
        )
        write(guest, "vdb", "five", 5)  # after the moment of the backup
        (volume,) = copy.volumes
        with pytest.raises(Conflict, match="busy with its backup pull"):
            agent.backups.create_snapshot("back")
    restart(node, agent)
    assert [c.phase for c in agent.backups.backups("back") if c.name == "pull"] == ["InProgress"]
    nbd = f"driver=nbd,export={volume.export},server.type=unix,server.path={copy.endpoint}"
    image = f"{nbd},x-dirty-bitmap=qemu:dirty-bitmap:{volume.bitmap}"
    extents = json.loads(node.run("qemu-img", "map", "--output=json", "--image-opts", image))
    # With x-dirty-bitmap what is dirty shows as a hole.
    dirty = [(e["start"] // MIB, e["length"] // MIB) for e in extents if not e["data"]]
    assert dirty == [(5, 1)]
    node.run("qemu-img", "convert", "-O", "raw", "--image-opts", nbd, "/run/pulled")
    assert block(node.layout.outside("/run/pulled").read_bytes(), 5) == "four"
    assert agent.backups.end_backup("back", "pull").phase == "Succeeded"
    node.run("rm", "/run/pulled")
    assert copy.checkpoint in [c.name for c in agent.backups.checkpoints("back")]

    other = agent.backups.begin_backup(
        "back", backup="cancelled", mode="pull", incremental=copy.checkpoint, volumes=["own"]
    )
    assert agent.backups.end_backup("back", "cancelled", abort=True).phase == "Failed"
    assert other.checkpoint not in [c.name for c in agent.backups.checkpoints("back")]
    late = agent.backups.begin_backup("back", backup="late", mode="pull", deadline_s=1)
    assert "did not end within 1 s" in agent.backups.wait(late, timeout_s=60).message


def test_only_tracked_disks_are_backed_up(agent: Client, lab: Lab, guest_image: Image) -> None:
    agent.instances.create(disks_guest(guest_image, "bare", {"own": EMPTY}))
    running(agent, "bare")
    with pytest.raises(WrongPhase, match="changedBlockTracking"):
        agent.backups.begin_backup("bare", directory=inside(lab.shared))
    assert "changedBlockTracking" not in agent.instances.get("bare")["status"]
