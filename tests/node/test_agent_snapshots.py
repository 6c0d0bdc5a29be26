# SPDX-License-Identifier: Apache-2.0
"""Snapshots of real guests: of one moment, quiet if the guest's agent can; nothing is lost or left."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from agent_world import client, eventually, is_true, leftovers, migration, running, until
from backup_world import MIB, block, content, disks_guest, start_agent, write
from feature_guests import Object, shell
from storage_world import files, inside, remove_all

from launcher.cli.client import Client
from launcher.errors import (
    AlreadyExists,
    Conflict,
    Exhausted,
    GuestAgentError,
    InvalidRequest,
    NotFound,
    StorageError,
    Unavailable,
    WrongPhase,
)
from launcher.lab.image import Image
from launcher.lab.lab import Lab
from launcher.lab.node import Node
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
    before = own_files(node)
    with client(node) as agent:
        yield agent
        remove_all(agent)
        for copy in agent.backups.snapshots():
            agent.backups.delete_snapshot(copy.vmi, copy.name, namespace=copy.namespace)
        assert leftovers(node) == []
        assert own_files(node) == before


def own_files(node: Node) -> list[str]:
    return [path for path in files(node) if not path.endswith("/snapshots")]


def host_disk(lab: Lab, name: str, *, size: int = 8 * MIB) -> tuple[Path, Object]:
    disk = lab.shared / name
    with disk.open("wb") as image:
        image.truncate(size)
    return disk, {"hostDisk": {"path": inside(disk), "type": "Disk", "shared": True}}


def answers(agent: Client) -> bool:
    try:
        agent.node()
    except Unavailable:
        return False
    return True


def test_a_snapshot_is_of_one_moment(agent: Client, node: Node, lab: Lab, guest_image: Image) -> None:
    disk, mine = host_disk(lab, "mine.img")
    agent.instances.create(disks_guest(guest_image, "snap", {"mine": mine, "own": EMPTY}))
    running(agent, "snap")
    with shell(agent, "snap") as guest:
        for device in ("vda", "vdb"):
            write(guest, device, "first", 0)
        # Without an agent: as after a power cut.
        copy = agent.backups.create_snapshot("snap", snapshot="plain")
        write(guest, "vda", "later", 1)
        done = agent.backups.wait(copy, timeout_s=60)
        assert (done.phase, list(done.indications)) == ("Succeeded", ["Online", "NoGuestAgent"])
        assert {v.volume: v.target for v in done.volumes} == {"mine": "vda", "own": "vdb"}
        for volume in done.volumes:
            data = content(node, volume.file)
            assert (len(data), block(data, 0), block(data, 1)) == (8 * MIB, "first", "")

        start_agent(guest)
        until(agent, "snap", lambda vmi: is_true(vmi, "AgentConnected"))
        copy = agent.backups.create_snapshot("snap", snapshot="quiet", volumes=["mine"])
        assert list(copy.indications) == ["Online", "GuestAgent"]
        done = agent.backups.wait(copy, timeout_s=60)
        data = content(node, done.volumes[0].file)
        assert data[8 * 512 :][:16].rstrip() == b"frozen"  # the copy is of a moment between freeze and thaw
        eventually("thawed", lambda: disk.read_bytes()[8 * 512 :][:16].rstrip() == b"thawed")
        assert guest.run("cat /tmp/asked").split() == ["freeze", "thaw"]
        assert "fsFreezeStatus" not in agent.instances.get("snap", namespace="default")["status"]

    with pytest.raises(AlreadyExists):
        agent.backups.create_snapshot("snap", snapshot="quiet")
    with pytest.raises(InvalidRequest, match="no disk is named"):
        agent.backups.create_snapshot("snap", volumes=["other"])
    remove_all(agent)
    # What the guest wrote last is in its own image, and the snapshots are still there.
    assert block(disk.read_bytes(), 1) == "later"
    kept = {copy.name: copy for copy in agent.backups.snapshots("snap", namespace="default")}
    assert sorted(kept) == ["plain", "quiet"]
    assert block(content(node, kept["plain"].volumes[1].file), 0) == "first"
    agent.backups.delete_snapshot("snap", "plain")
    agent.backups.delete_snapshot("snap", "quiet")
    with pytest.raises(NotFound):
        agent.backups.delete_snapshot("snap", "quiet")
    assert node.run("find", "/var/lib/launcher/snapshots", "-mindepth", "1") == ""


def test_an_agent_that_is_killed_finds_its_snapshots(
    agent: Client, node: Node, lab: Lab, guest_image: Image
) -> None:
    disk, mine = host_disk(lab, "cut.img", size=64 * MIB)
    with disk.open("r+b") as image:
        for number in range(64):
            image.write(bytes([number + 1]) * MIB)
    agent.instances.create(disks_guest(guest_image, "cut", {"mine": mine}))
    running(agent, "cut")
    copy = agent.backups.create_snapshot("cut", snapshot="seen")
    restart(node, agent)
    done = agent.backups.wait(copy, timeout_s=60)
    assert done.phase == "Succeeded", done.message
    data = content(node, done.volumes[0].file)
    assert [data[number * MIB] for number in range(64)] == list(range(1, 65))

    # Killed while it waits for the guest to be frozen: no snapshot, and the guest is not left frozen.
    with shell(agent, "cut") as guest:
        start_agent(guest)
        guest.run("touch /tmp/wait")
    until(agent, "cut", lambda vmi: is_true(vmi, "AgentConnected"))
    with ThreadPoolExecutor(1) as pool, client(node) as other:
        lost = pool.submit(other.backups.create_snapshot, "cut", snapshot="never")
        eventually("freezing", lambda: "fsFreezeStatus" in agent.instances.get("cut")["status"])
        with pytest.raises(Conflict, match="busy with its snapshot never"):
            agent.backups.create_snapshot("cut", snapshot="other")
        with pytest.raises(Conflict, match="not migrated during its snapshot never"):
            agent.migrations.create(migration("cut"), target="127.0.0.1:1", namespace="default")
        node.stop_agent(signal.SIGKILL)
        assert isinstance(lost.exception(timeout=60), Unavailable)
    restart(node, agent)
    phases = {copy.name: agent.backups.wait(copy, timeout_s=60).phase for copy in agent.backups.snapshots()}
    assert phases == {"seen": "Succeeded", "never": "Failed"}
    kept = node.run("find", "/var/lib/launcher/snapshots", "-name", "*.qcow2").split()
    assert [path.split("/")[-2] for path in kept] == ["seen"]
    with shell(agent, "cut", up=True) as guest:
        eventually("thawed", lambda: guest.run("cat /tmp/asked").split() == ["freeze", "thaw"])
    again = agent.backups.wait(agent.backups.create_snapshot("cut", snapshot="again"), timeout_s=60)
    assert again.phase == "Succeeded", again.message


def restart(node: Node, agent: Client) -> None:
    node.stop_agent(signal.SIGKILL)
    node.start_agent()
    eventually("the agent answers", lambda: answers(agent))


def test_what_is_frozen_thaws(agent: Client, node: Node, guest_image: Image) -> None:
    agent.instances.create(disks_guest(guest_image, "cold", {"own": EMPTY}))
    running(agent, "cold")
    with shell(agent, "cold") as guest:
        with pytest.raises(GuestAgentError):
            agent.backups.freeze("cold", unfreeze_timeout_s=300)
        assert "fsFreezeStatus" not in agent.instances.get("cold")["status"]
        start_agent(guest)
        until(agent, "cold", lambda vmi: is_true(vmi, "AgentConnected"))
        agent.backups.freeze("cold", unfreeze_timeout_s=300)
        until(agent, "cold", lambda vmi: vmi["status"].get("fsFreezeStatus") == "frozen")
        agent.backups.freeze("cold", unfreeze_timeout_s=300)
        agent.backups.unfreeze("cold")
        agent.backups.unfreeze("cold")
        assert guest.run("cat /tmp/asked").split() == ["freeze", "thaw"]
        agent.backups.freeze("cold", unfreeze_timeout_s=3)
    restart(node, agent)
    until(agent, "cold", lambda vmi: "fsFreezeStatus" not in vmi["status"])
    with shell(agent, "cold", up=True) as guest:
        assert guest.run("cat /tmp/asked").split() == ["freeze", "thaw"] * 2


def test_what_cannot_be_copied_is_refused(agent: Client, node: Node, lab: Lab, guest_image: Image) -> None:
    _, mine = host_disk(lab, "both.img")
    manifest = disks_guest(guest_image, "shared", {"mine": mine, "own": EMPTY})
    manifest["spec"]["domain"]["devices"]["disks"][0]["shareable"] = True
    agent.instances.create(manifest)
    with pytest.raises((WrongPhase, InvalidRequest)):
        agent.backups.create_snapshot("shared")
    running(agent, "shared")
    with pytest.raises(InvalidRequest, match="mine is shareable"):
        agent.backups.create_snapshot("shared")
    copy = agent.backups.create_snapshot("shared", snapshot="own", volumes=["own"])
    assert agent.backups.wait(copy, timeout_s=60).phase == "Succeeded"
    with pytest.raises(NotFound):
        agent.backups.create_snapshot("nobody")


def dump_state(vmi: Object) -> Object:
    """The status of the dump's volume."""
    found = [v for v in vmi["status"]["volumeStatus"] if v.get("memoryDumpVolume")]
    return dict(found[0]) if found else {}


def dumped(agent: Client, name: str) -> Object:
    """Wait for the end of a dump."""
    ends = {"MemoryDumpCompleted", "MemoryDumpFailed"}
    return dump_state(until(agent, name, lambda vmi: dump_state(vmi).get("phase") in ends))


def test_memory_is_dumped_into_a_claim(agent: Client, node: Node, lab: Lab, guest_image: Image) -> None:
    folder = lab.shared / "dumps"
    folder.mkdir()
    manifest = disks_guest(guest_image, "core", {"own": EMPTY})
    manifest["spec"]["volumes"].append({"name": "dump", "memoryDump": {"claimName": "dumps"}})
    claim = ClaimBinding(claim="dumps", path=inside(folder))
    agent.instances.create(manifest, Companions(claims=[claim]))
    assert dump_state(running(agent, "core"))["phase"] == "Ready"
    with shell(agent, "core") as guest:
        # The pattern is in the guest's memory only as long as its page cache has the file.
        guest.run("yes 'a pattern that is in no kernel' | head -c 200000 >/tmp/pattern")
    agent.backups.dump_memory("core")
    done = dumped(agent, "core")
    assert done["phase"] == "MemoryDumpCompleted", done
    first = folder / done["memoryDumpVolume"]["targetFileName"]
    data = first.read_bytes()
    assert data.startswith(b"\x7fELF")
    assert len(data) > 128 * MIB
    assert b"a pattern that is in no kernel\n" * 20 in data

    # Killed in the middle: either there is a whole dump, or none and it says so; the guest runs on.
    agent.backups.dump_memory("core")
    restart(node, agent)
    done = dumped(agent, "core")
    names = sorted(path.name for path in folder.iterdir())
    if done["phase"] == "MemoryDumpCompleted":
        assert names == [done["memoryDumpVolume"]["targetFileName"]]
    else:
        assert names == [first.name]
    running(agent, "core")

    # Too small a claim, one that is no directory, and one that is not there.
    small = inside(lab.shared / "small")
    node.run("sh", "-c", f"mkdir {small} && mount -t tmpfs -o size=64m none {small}")
    with pytest.raises(Exhausted, match="are needed"):
        agent.backups.dump_memory("core", claim="s", binding=ClaimBinding(claim="s", path=small))
    node.run("sh", "-c", f"umount {small} && rmdir {small}")
    with pytest.raises(StorageError, match="is not a directory"):
        agent.backups.dump_memory("core", claim="s", binding=ClaimBinding(claim="s", path="/nowhere"))
    with pytest.raises(InvalidRequest, match="must be bound"):
        agent.backups.dump_memory("core", claim="other")
    agent.backups.forget_memory_dump("core")
    assert dump_state(agent.instances.get("core"))["phase"] == "Ready"
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
