# SPDX-License-Identifier: Apache-2.0
"""Volumes through failures on a real node: refused, retried, healed, given back, and no leak at any kill."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from agent_world import client, condition, eventually, is_true, leftovers, phase, qemu_pid, running, until
from feature_guests import Object, guest, kernel_boot, shell
from storage_images import tar, write_layout
from storage_world import (
    MIB,
    RUN,
    STATE,
    complaint,
    daemons,
    files,
    inside,
    ready,
    remove_all,
)

from launcher.cli.client import Client
from launcher.errors import Conflict, InvalidRequest, Unavailable
from launcher.lab.image import Image
from launcher.lab.lab import Lab
from launcher.lab.node import Node
from launcher.v1.types_pb2 import ClaimBinding, Companions, KeyedData

pytestmark = pytest.mark.node

_MAKING = re.compile(r'message=making .*?step="(\w+) (\d+)/(\d+)"')


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
        eventually("the agent answers", lambda: answers(agent))
        remove_all(agent)
        assert leftovers(node) == []
        assert files(node) == before
        assert daemons(node) == ""


@pytest.fixture
def shared(lab: Lab, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A folder of the test's own that nodes see, at ``inside(folder)``."""
    folder: Path = lab.shared / re.sub(r"\W", "-", request.node.name)[:40]
    folder.mkdir()
    yield folder
    subprocess.run(["rm", "-r", folder], check=True)


def answers(agent: Client) -> bool:
    try:
        agent.node()
    except Unavailable:
        return False
    return True


def one_disk(name: str, volume: Object, *, memory: str = "64Mi", **disk: object) -> Object:
    """A guest with the volume ``v`` and nothing to boot from."""
    attached = {"name": "v", "disk": {"bus": "virtio"}, **disk}
    return guest(name, memory=memory, devices={"disks": [attached]}, volumes=[{"name": "v", **volume}])


def host_disk(path: Path) -> Object:
    return {"hostDisk": {"path": inside(path), "type": "Disk"}}


# --- refused at once --------------------------------------------------------------------------------------


def test_content_that_did_not_come_along_is_refused(agent: Client) -> None:
    with pytest.raises(InvalidRequest) as caught:
        agent.instances.create(one_disk("bare", {"secret": {"secretName": "gone"}}))
    assert [v.field for v in caught.value.violations] == ["companions.secrets[gone]"]
    assert agent.instances.list() == []


def test_a_volume_has_one_writer_unless_it_is_shareable(agent: Client, shared: Path) -> None:
    disk = shared / "d.img"
    disk.write_bytes(bytes(MIB))
    agent.instances.create(one_disk("first", host_disk(disk)))
    running(agent, "first")
    for manifest in (
        one_disk("second", host_disk(disk)),
        one_disk("second", host_disk(disk), shareable=True),
        one_disk("second", host_disk(shared / "." / "d.img"), disk={"bus": "virtio", "readonly": True}),
    ):
        with pytest.raises(Conflict, match=r"volume 'v': .*d\.img is written by volume 'v' of default/first"):
            agent.instances.create(manifest)
    remove_all(agent)
    for name in ("first", "second"):
        agent.instances.create(one_disk(name, host_disk(disk), shareable=True))
        running(agent, name)


def test_readers_share_a_base(agent: Client, shared: Path) -> None:
    (shared / "base.img").write_bytes(bytes(MIB))
    beside = Companions(claims=[ClaimBinding(claim="c", path=inside(shared / "base.img"))])
    for name in ("one", "two"):
        source: Object = {"ephemeral": {"persistentVolumeClaim": {"claimName": "c"}}}
        agent.instances.create(one_disk(name, source), beside)
        running(agent, name)


# --- complained about, and healed -------------------------------------------------------------------------


def test_a_file_that_is_missing_is_waited_for(agent: Client, shared: Path) -> None:
    disk = shared / "late.img"
    agent.instances.create(one_disk("late", host_disk(disk)))
    assert "No such file" in complaint(agent, "late", r"volume 'v': .*late\.img")
    disk.touch()
    complaint(agent, "late", r"volume 'v': .*late\.img is empty")
    disk.write_bytes(bytes(MIB))
    running(agent, "late")
    until(agent, "late", lambda vmi: condition(vmi, "Synchronized") is None)


def test_a_device_that_is_smaller_than_its_claim(agent: Client, shared: Path) -> None:
    (shared / "small.img").write_bytes(bytes(MIB))
    source: Object = {"persistentVolumeClaim": {"claimName": "c"}}
    with loop_device(shared / "small.img") as device:
        claim = ClaimBinding(claim="c", path=device, block=True, capacity=2 * MIB)
        agent.instances.create(one_disk("small", source), Companions(claims=[claim]))
        complaint(agent, "small", r"volume 'v': .* has 1\.0 MiB, and the claim says 2\.0 MiB")
        os.truncate(shared / "small.img", 2 * MIB)
        subprocess.run(["losetup", "-c", device], check=True)
        running(agent, "small")
        remove_all(agent)


def test_a_locked_image_names_its_volume_and_is_tried_again(agent: Client, node: Node, shared: Path) -> None:
    disk = shared / "locked.img"
    disk.write_bytes(bytes(MIB))
    holder = subprocess.Popen(["qemu-io", "-f", "raw", disk], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert holder.stdout is not None
        holder.stdout.read(1)  # its prompt: the image is open
        agent.instances.create(one_disk("locked", host_disk(disk)))
        complaint(agent, "locked", r"volume 'v': .*locked\.img: another process has the image open")
    finally:
        holder.communicate(b"quit\n", timeout=10)
    running(agent, "locked")


def test_a_full_file_system_is_told_and_tried_again(agent: Client, node: Node, shared: Path) -> None:
    folder = shared / "full"
    folder.mkdir()
    source: Object = {"persistentVolumeClaim": {"claimName": "c"}}
    claim = ClaimBinding(claim="c", path=inside(folder), capacity=8 * MIB)
    with on_node(node, f"mount -t tmpfs -o size=1m tmpfs {inside(folder)}", f"umount {inside(folder)}"):
        agent.instances.create(one_disk("full", source), Companions(claims=[claim]))
        complaint(agent, "full", r"volume 'v': .* left, and 8\.0 MiB are asked for")
        node.run("mount", "-o", "remount,size=16m", inside(folder))
        running(agent, "full")
        remove_all(agent)


def test_what_a_guest_writes_never_makes_its_disk_another_format(
    agent: Client, node: Node, shared: Path
) -> None:
    """A guest left a qcow2 header that names a file of the host, where its raw disk begins."""
    claimed, over = shared / "claim.img", shared / "over.img"
    for disk in (claimed, over):
        words = ["-u", "-b", "/etc/shadow", "-F", "raw", str(disk), "1M"]
        subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", *words], check=True)
        os.truncate(disk, 2 * MIB)
    beside = Companions(
        claims=[
            ClaimBinding(claim="c", path=inside(claimed), capacity=3 * MIB),
            ClaimBinding(claim="o", path=inside(over)),
        ]
    )
    manifest = one_disk("raw", {"persistentVolumeClaim": {"claimName": "c"}})
    manifest["spec"]["domain"]["devices"]["disks"] += [
        {"name": name, "disk": {"bus": "virtio"}} for name in ("e", "h")
    ]
    manifest["spec"]["volumes"] += [
        {"name": "e", "ephemeral": {"persistentVolumeClaim": {"claimName": "o"}}},
        {"name": "h", **host_disk(shared / "host.img")},
    ]
    (shared / "host.img").write_bytes(claimed.read_bytes())
    agent.instances.create(manifest, beside)
    running(agent, "raw")
    seen = json.loads(node.run("virsh", "qemu-monitor-command", "default_raw", '{"execute": "query-block"}'))
    images = {
        device["qdev"].split("/")[-2].removeprefix("ua-"): device["inserted"]["image"]
        for device in seen["return"]
    }
    assert {name: image["format"] for name, image in images.items()} == {"v": "raw", "e": "qcow2", "h": "raw"}
    sizes = {name: image["virtual-size"] for name, image in images.items() if name != "e"}
    assert sizes == {"v": 3 * MIB, "h": 2 * MIB}, "the files', and the claim's grew: no header says 1 MiB"
    assert images["e"]["backing-image"]["format"] == "raw"
    assert images["e"]["virtual-size"] == 2 * MIB, "of the file, not what its header says"
    opened = node.run("sh", "-c", f"ls -l /proc/{qemu_pid(node, 'raw')}/fd")
    assert "shadow" not in opened


def test_an_emptied_cache_and_a_lost_image_heal(agent: Client, node: Node, shared: Path) -> None:
    """What was made for a guest that cannot start yet is made again, when it is gone."""
    disk = shared / "d.img"
    disk.write_bytes(bytes(MIB))
    holder = subprocess.Popen(["qemu-io", "-f", "raw", disk], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert holder.stdout is not None
        holder.stdout.read(1)
        manifest = one_disk("lost", host_disk(disk))
        manifest["spec"]["volumes"].append({"name": "e", "emptyDisk": {"capacity": "1Mi"}})
        manifest["spec"]["domain"]["devices"]["disks"].append({"name": "e", "disk": {"bus": "virtio"}})
        uid = agent.instances.create(manifest)["metadata"]["uid"]
        complaint(agent, "lost", "another process")
        node.layout.outside(f"{STATE}/instances/{uid}/disks/e.qcow2").unlink()
    finally:
        holder.communicate(b"quit\n", timeout=10)
    running(agent, "lost")


def test_a_claim_grows_and_is_filled_when_asked(agent: Client, shared: Path) -> None:
    folder = shared / "claim"
    folder.mkdir()
    source: Object = {"persistentVolumeClaim": {"claimName": "c"}}
    for size, preallocated in ((2, False), (4, False), (3, False), (6, True)):
        claim = ClaimBinding(
            claim="c", path=inside(folder), capacity=size * MIB + 5, preallocated=preallocated
        )
        agent.instances.create(one_disk("grow", source), Companions(claims=[claim]))
        running(agent, "grow")
        remove_all(agent)
        disk = folder / "disk.img"
        assert disk.stat().st_size == max(size, 4 if size == 3 else 0) * MIB
        (first := disk.open("r+b")).write(b"kept")
        first.close()
    assert (folder / "disk.img").stat().st_blocks * 512 >= 2 * MIB, "what was added is taken"


@contextmanager
def loop_device(path: Path) -> Iterator[str]:
    done = subprocess.run(["losetup", "-f", "--show", path], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no loop devices here: {done.stderr.strip()}")
    device = done.stdout.strip()
    try:
        yield device
    finally:
        subprocess.run(["losetup", "-d", device], check=True)


@contextmanager
def on_node(node: Node, do: str, undo: str) -> Iterator[None]:
    node.run("sh", "-c", do)
    try:
        yield
    finally:
        node.run("sh", "-c", undo)


# --- given back -------------------------------------------------------------------------------------------


def with_everything(image: Image, shared: Path, name: str, *, cmdline: str = "shell=1 tick=0") -> Object:
    """A Linux guest with one volume of each way of making them."""
    boot = kernel_boot(image)
    boot["kernelArgs"] = f"console=ttyS0 quiet panic=1 {cmdline}"
    attached = {"disk": {"bus": "virtio"}}
    manifest = guest(
        name,
        memory="192Mi",
        domain={"firmware": {"kernelBoot": boot, "acpi": {"slicNameRef": "slic"}}},
        devices={
            "disks": [{"name": disk, **attached} for disk in ("seed", "image", "empty", "claim")],
            "filesystems": [{"name": "keys", "virtiofs": {}}],
            "interfaces": [{"name": "default", "masquerade": {}}],
        },
        networks=[{"name": "default", "pod": {}}],
        volumes=[
            {"name": "seed", "cloudInitNoCloud": {"userData": "#cloud-config"}},
            {"name": "image", "containerDisk": {"image": f"oci:{inside(shared)}/image:latest"}},
            {"name": "empty", "emptyDisk": {"capacity": "1Mi"}},
            {"name": "claim", "persistentVolumeClaim": {"claimName": "c"}},
            {"name": "keys", "secret": {"secretName": "s"}},
            {"name": "slic", "secret": {"secretName": "table"}},
        ],
    )
    del manifest["spec"]["domain"]["devices"]["autoattachPodInterface"]
    return manifest


def beside(shared: Path) -> Companions:
    (shared / "claim").mkdir(exist_ok=True)
    if not (shared / "image").exists():
        write_layout(shared / "image", tar(("disk/any.img", b"image".ljust(MIB, b"\0"))))
    table = bytearray(b"SLIC" + (36).to_bytes(4, "little") + bytes(28))
    table[9] = -sum(table) % 256
    return Companions(
        secrets={
            "s": KeyedData(data={"key": b"hunter2"}),
            "table": KeyedData(data={"slic.bin": bytes(table)}),
        },
        claims=[ClaimBinding(claim="c", path=inside(shared / "claim"), capacity=MIB)],
    )


def test_a_guest_that_ended_keeps_its_log_and_nothing_else(
    agent: Client, node: Node, shared: Path, guest_image: Image
) -> None:
    manifest = with_everything(guest_image, shared, "short", cmdline="off=2")
    uid = agent.instances.create(manifest, beside(shared))["metadata"]["uid"]
    assert phase(until(agent, "short", lambda vmi: phase(vmi) in {"Succeeded", "Failed"})) == "Succeeded"
    own = f"{STATE}/instances/{uid}"

    def kept() -> list[str]:
        return sorted(node.run("find", own, f"{RUN}/i/{uid}", "-type", "f", "-o", "-type", "s").splitlines())

    logs = [f"{own}/serial0.log", f"{own}/virtiofs0.log"]
    eventually("all else is gone", lambda: kept() == logs)
    assert daemons(node) == ""
    assert (shared / "claim" / "disk.img").exists()
    assert b"GUEST UP" in agent.instances.console_log("short", namespace="default")


# --- shares -----------------------------------------------------------------------------------------------


def test_a_share_outlives_the_agent_and_its_end_is_told(
    agent: Client, node: Node, shared: Path, guest_image: Image
) -> None:
    agent.instances.create(with_everything(guest_image, shared, "share"), beside(shared))
    ready(agent, "share")
    before = daemons(node)
    assert before.count("virtiofsd") >= 1
    node.stop_agent(signal.SIGKILL)
    node.start_agent()
    eventually("the agent answers", lambda: answers(agent))
    vmi = running(agent, "share")
    assert daemons(node) == before
    assert condition(vmi, "SharesConnected") is None
    with shell(agent, "share") as within:
        assert within.run("mkdir /m; mount -t virtiofs keys /m && cat /m/key") == "hunter2"
    node.run("sh", "-c", f"kill -9 {before.split()[0]}")
    node.stop_agent(signal.SIGKILL)
    node.start_agent()
    eventually("the agent answers", lambda: answers(agent))
    lost = until(agent, "share", lambda vmi: condition(vmi, "SharesConnected"))
    found = condition(lost, "SharesConnected")
    assert found is not None
    assert (found["status"], found["reason"]) == ("False", "VirtiofsdEnded")
    assert "volume 'keys'" in found["message"]
    assert is_true(lost, "Ready"), "the guest runs on"


# --- killed between any two steps -------------------------------------------------------------------------


def test_killed_between_any_two_steps_nothing_leaks(
    agent: Client, node: Node, shared: Path, guest_image: Image
) -> None:
    """The agent is killed when its log says that it makes step N, for every N; then it starts the guest all
    the same, or the instance is deleted, and nothing of it is left."""
    manifest = with_everything(guest_image, shared, "killed")
    companions = beside(shared)
    count, seen = 1, set[int]()
    number = 0
    while number < count:
        number += 1
        offset = node.layout.agent_log.stat().st_size
        agent.instances.create(manifest, companions)
        count = max(count, _kill_at(node, offset, number, seen))
        node.start_agent()
        eventually("the agent answers", lambda: answers(agent))
        if number % 4 == 0:
            ready(agent, "killed")
        remove_all(agent)
        assert leftovers(node) == []
        assert daemons(node) == ""
        assert sorted(path.name for path in (shared / "claim").iterdir()) in ([], ["disk.img"])
    assert count >= 12
    assert len(seen) > count / 2, "most kills hit the step they were meant for"


def _kill_at(node: Node, offset: int, number: int, seen: set[int]) -> int:
    """Kill the agent when it makes step ``number`` (or soon after); returns how many steps there are."""
    agent, end, told = node.agent_pid, time.monotonic() + 60, ""
    assert agent is not None
    with node.layout.agent_log.open() as log:  # what was read is not read again: the agent is quick
        log.seek(offset)
        while True:
            told += log.read()
            found = [(int(m[2]), int(m[3])) for m in _MAKING.finditer(told)]
            if found and found[-1][0] >= number:
                os.kill(agent, signal.SIGKILL)
                break
            assert time.monotonic() < end, f"step {number} is not made"
        node.stop_agent(signal.SIGKILL)
        last = [(int(m[2]), int(m[3])) for m in _MAKING.finditer(told + log.read())][-1]
    seen.add(last[0])
    return last[1]
