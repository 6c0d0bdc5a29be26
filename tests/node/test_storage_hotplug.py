# SPDX-License-Identifier: Apache-2.0
"""Volumes of guests that run: plugged, written, unplugged, carried to another guest and another node."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from agent_world import client, condition, eventually, leftovers, migrated, migration, running, until
from feature_guests import Object, Shell, guest, kernel_boot, shell
from storage_world import MIB, STATE, files, inside, remove_all

from launcher.cli.client import Client
from launcher.errors import Conflict, InvalidSpec, NotFound, Unavailable
from launcher.lab.image import Image
from launcher.lab.lab import Lab
from launcher.lab.node import Node
from launcher.v1.types_pb2 import ClaimBinding, Companions

pytestmark = pytest.mark.node


@pytest.fixture(scope="module")
def node(lab_with_agents: Lab) -> Node:
    return lab_with_agents.node("a")


@pytest.fixture
def agent(node: Node) -> Iterator[Client]:
    before = files(node)
    with client(node) as agent:
        yield agent
        remove_all(agent)
        assert leftovers(node) == []
        assert files(node) == before


@pytest.fixture
def shared(lab_with_agents: Lab) -> Iterator[Path]:
    """A folder of the test's own that all nodes see, at ``inside(folder)``."""
    folder: Path = lab_with_agents.shared / f"hotplug-{time.monotonic_ns()}"
    folder.mkdir()
    yield folder
    subprocess.run(["rm", "-r", folder], check=True)


def linux(image: Image, name: str, *disks: Object) -> Object:
    """A Linux guest with a shell and, without further ado, no disks."""
    domain = {"firmware": {"kernelBoot": kernel_boot(image)}}
    return guest(name, memory="128Mi", domain=domain, devices={"disks": list(disks)})


def options(name: str, path: Path, *, bus: str = "scsi") -> Object:
    source = {"hostDisk": {"path": inside(path), "type": "Disk"}}
    return {"name": name, "volumeSource": source, "disk": {"disk": {"bus": bus}, "serial": "Sn-1"}}


def volume(vmi: Object, name: str) -> Object:
    return next((v for v in vmi["status"].get("volumeStatus", ()) if v["name"] == name), {})


def settled(vmi: Object) -> bool:
    return condition(vmi, "HotVolumeChange") is None


def has(agent: Client, vmi: str, name: str, **more: float) -> Object:
    """Wait until the guest has the volume."""
    return until(agent, vmi, lambda o: volume(o, name).get("phase") == "Ready" and settled(o), **more)


def lacks(agent: Client, vmi: str, name: str, **more: float) -> Object:
    """Wait until nothing is left of the volume."""
    return until(agent, vmi, lambda o: volume(o, name) == {} and settled(o), **more)


def answers(agent: Client) -> bool:
    try:
        agent.node()
    except Unavailable:
        return False
    return True


def test_a_disk_goes_from_guest_to_guest_and_to_another_node(
    lab_with_agents: Lab, node: Node, agent: Client, shared: Path, guest_image: Image
) -> None:
    disk = shared / "data.img"
    disk.write_bytes(bytes(4 * MIB))
    for name in ("one", "two"):
        agent.instances.create(linux(guest_image, name))
    for name in ("one", "two"):
        running(agent, name)
    agent.volumes.add("one", options("data", disk))
    assert volume(has(agent, "one", "data"), "data")["target"] == "sda"
    with pytest.raises(Conflict, match="is written by volume 'data' of default/one"):
        agent.volumes.add("two", options("data", disk))
    with shell(agent, "one") as within:
        eventually("the disk", lambda: "8192" in within.run("cat /sys/block/sda/size"))
        within.run("echo carried | dd of=/dev/sda bs=512 conv=fsync; sync")
        agent.volumes.remove("one", "data")
        lacks(agent, "one", "data")
        assert "No such" in within.run("ls /sys/block/sda")
    assert disk.exists(), "it is the user's"

    agent.volumes.add("two", options("data", disk, bus="virtio"))
    vmi = has(agent, "two", "data")
    assert volume(vmi, "data")["target"] == "vda"
    assert "hotplugVolume" in volume(vmi, "data")
    with shell(agent, "two") as within:
        eventually("the disk", lambda: "8192" in within.run("cat /sys/block/vda/size"))
        assert within.run("head -c 7 /dev/vda") == "carried"
        assert within.run("cat /sys/block/vda/serial") == "Sn-1"
        agent.volumes.add("two", {"name": "own", "volumeSource": {"emptyDisk": {"capacity": "4Mi"}}})
        assert volume(has(agent, "two", "own"), "own")["target"] == "sda"
        within.run("echo moved | dd of=/dev/sda bs=512 conv=fsync; sync")
        agent.volumes.remove("two", "data")
        lacks(agent, "two", "data", timeout_s=120)
        eventually("the guest has given it back", lambda: "No such" in within.run("ls /sys/block/vda"))

    with client(lab_with_agents.node("b")) as other:
        agent.migrations.create(migration("two"), target="b")
        assert migrated(agent, "move-two").report.succeeded
        assert volume(has(other, "two", "own"), "own")["target"] == "sda"
        with shell(other, "two", up=True) as within:
            read = "echo 3 >/proc/sys/vm/drop_caches; dd if=/dev/sda bs=512 count=1 2>/dev/null | head -c 5"
            assert within.run(read) == "moved"
            other.volumes.remove("two", "own")
            lacks(other, "two", "own")
            assert "No such" in within.run("ls /sys/block/sda")
        remove_all(other)
        assert leftovers(lab_with_agents.node("b")) == []


def test_killed_at_any_step_nothing_leaks_or_is_lost(node: Node, agent: Client, guest_image: Image) -> None:
    """The agent is killed when its log says that it takes a step to plug or unplug a disk that it has to
    make itself; it comes back and brings that to its end."""
    uid = agent.instances.create(linux(guest_image, "killed"))["metadata"]["uid"]
    running(agent, "killed")
    own = node.layout.outside(f"{STATE}/instances/{uid}/disks")
    empty = {"name": "scratch", "volumeSource": {"emptyDisk": {"capacity": "1Mi"}}}
    for step in ("makevolume", "step=CreateImage", "plugdisk", "unplugdisk", "dropvolume"):
        offset = len(node.agent_log())
        agent.volumes.add("killed", empty)
        if step in {"unplugdisk", "dropvolume"}:
            has(agent, "killed", "scratch")
            agent.volumes.remove("killed", "scratch")
        eventually(step, lambda: step in node.agent_log()[offset:])  # noqa: B023 - called at once
        node.stop_agent(signal.SIGKILL)
        node.start_agent()
        eventually("the agent answers", lambda: answers(agent))
        if step not in {"unplugdisk", "dropvolume"}:
            has(agent, "killed", "scratch")
            assert [path.name for path in own.iterdir()] == ["scratch.qcow2"]
            agent.volumes.remove("killed", "scratch")
        lacks(agent, "killed", "scratch")
        assert list(own.iterdir()) == []
    xml = node.run("virsh", "dumpxml", "--inactive", "default_killed")
    assert "scratch" not in xml


def test_media_are_put_in_exchanged_and_taken_out(agent: Client, shared: Path, guest_image: Image) -> None:
    for name in ("first", "second"):
        (shared / f"{name}.iso").write_bytes(name.encode().ljust(MIB, b"\0"))
    agent.instances.create(linux(guest_image, "drive", {"name": "cd", "cdrom": {"bus": "scsi"}}))
    running(agent, "drive")

    def source(name: str) -> Object:
        return {"hostDisk": {"path": inside(shared / f"{name}.iso"), "type": "Disk"}}

    def reads(within: Shell, wanted: str) -> bool:
        return within.run("head -c 6 /dev/sr0").startswith(wanted)

    with shell(agent, "drive") as within:
        agent.volumes.add("drive", {"name": "cd", "volumeSource": source("first")})
        has(agent, "drive", "cd")
        eventually("the first one", lambda: reads(within, "first"))
        vmi = agent.instances.get("drive", namespace="default")
        vmi["spec"]["volumes"] = [{"name": "cd", **source("second")}]
        agent.instances.update(vmi)
        has(agent, "drive", "cd")
        eventually("the second one", lambda: reads(within, "second"))
        agent.volumes.remove("drive", "cd")
        lacks(agent, "drive", "cd")
        eventually("nothing", lambda: "No medium" in within.run("head -c 6 /dev/sr0"))
    assert (shared / "first.iso").exists()
    with pytest.raises(NotFound):
        agent.volumes.remove("drive", "cd")


def test_a_claim_grows_under_a_guest_that_runs(agent: Client, shared: Path, guest_image: Image) -> None:
    (shared / "claim").mkdir()
    agent.instances.create(linux(guest_image, "grow"))
    running(agent, "grow")
    bound = ClaimBinding(claim="c", path=inside(shared / "claim"), capacity=2 * MIB)
    source: Object = {"persistentVolumeClaim": {"claimName": "c"}}
    agent.volumes.add("grow", {"name": "data", "volumeSource": source}, Companions(claims=[bound]))
    has(agent, "grow", "data")
    until(agent, "grow", lambda vmi: volume(vmi, "data").get("size") == 2 * MIB)
    vmi = agent.instances.get("grow", namespace="default")
    bound.capacity = 6 * MIB
    bound.preallocated = True
    with pytest.raises(Exception, match="only its capacity"):
        agent.instances.update(vmi, Companions(claims=[bound]))
    bound.preallocated = False
    agent.instances.update(vmi, Companions(claims=[bound]))
    until(agent, "grow", lambda vmi: volume(vmi, "data").get("size") == 6 * MIB and settled(vmi))
    disk = shared / "claim" / "disk.img"
    assert disk.stat().st_size == 6 * MIB
    with shell(agent, "grow") as within:
        eventually("the guest sees it", lambda: within.run("cat /sys/block/sda/size") == str(6 * MIB // 512))
    with disk.open("r+b") as image:
        image.truncate(8 * MIB)  # somebody else made it larger
    agent.instances.update(agent.instances.get("grow", namespace="default"))
    until(agent, "grow", lambda vmi: volume(vmi, "data").get("size") == 8 * MIB)


def test_what_cannot_be_plugged_is_refused_and_what_is_missing_is_waited_for(
    agent: Client, shared: Path, guest_image: Image
) -> None:
    agent.instances.create(linux(guest_image, "wait"))
    running(agent, "wait")
    disk = shared / "late.img"
    with pytest.raises(InvalidSpec, match="scsi or virtio"):
        agent.volumes.add("wait", options("data", disk, bus="sata"))
    agent.volumes.add("wait", options("data", disk))
    vmi = until(agent, "wait", lambda vmi: volume(vmi, "data").get("reason") == "VolumeNotFound")
    assert volume(vmi, "data")["phase"] == "Pending"
    change = condition(vmi, "HotVolumeChange")
    assert change is not None
    assert (change["status"], change["reason"]) == ("True", "VolumeNotFound")
    held = shared / "held.img"
    held.write_bytes(bytes(MIB))
    holder = subprocess.Popen(["qemu-io", "-f", "raw", held], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert holder.stdout is not None
        holder.stdout.read(1)  # its prompt: the image is open
        held.rename(disk)
        until(agent, "wait", lambda vmi: volume(vmi, "data").get("reason") == "VolumeLocked")
    finally:
        holder.communicate(b"quit\n", timeout=10)
    has(agent, "wait", "data")
