# SPDX-License-Identifier: Apache-2.0
"""I/O errors of guests that run, and images that two guests want: told by volume, and healed."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from agent_world import client, condition, eventually, is_true, leftovers, running, until
from feature_guests import Object, guest, kernel_boot, shell
from storage_world import MIB, files, inside, remove_all

from launcher.cli.client import Client
from launcher.errors import Conflict
from launcher.lab.image import Image
from launcher.lab.lab import Lab
from launcher.lab.node import Node

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
    folder: Path = lab_with_agents.shared / f"errors-{time.monotonic_ns()}"
    folder.mkdir()
    yield folder
    subprocess.run(["rm", "-r", folder], check=True)


def with_disk(name: str, path: str, *, image: Image | None = None, **disk: object) -> Object:
    """A guest with the hostDisk ``path``; with ``image`` a Linux that has a shell."""
    domain = {"firmware": {"kernelBoot": kernel_boot(image)}} if image is not None else {}
    return guest(
        name,
        memory="128Mi" if image is not None else "64Mi",
        domain=domain,
        devices={"disks": [{"name": "v", "disk": {"bus": "virtio"}, **disk}]},
        volumes=[{"name": "v", "hostDisk": {"path": path, "type": "Disk"}}],
    )


def volume(vmi: Object) -> Object:
    return next((v for v in vmi["status"].get("volumeStatus", ()) if v["name"] == "v"), {})


def reason(vmi: Object, kind: str) -> str | None:
    found = condition(vmi, kind)
    return found.get("reason") if found is not None else None


@contextmanager
def small_file_system(node: Node, path: str, size: str) -> Iterator[None]:
    """A tmpfs that only the node sees."""
    node.run("mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", path)
    try:
        yield
    finally:
        node.run("umount", path)


def test_a_guest_goes_on_when_its_full_file_system_has_room_again(
    node: Node, agent: Client, shared: Path, guest_image: Image
) -> None:
    where = inside(shared)
    with small_file_system(node, where, "6m"):
        node.run("truncate", "-s", "16M", f"{where}/d.img")
        node.run("sh", "-c", f"head -c 3000000 /dev/zero >{where}/ballast")
        agent.instances.create(with_disk("full", f"{where}/d.img", image=guest_image))
        running(agent, "full")
        with shell(agent, "full") as within:
            within.type("dd if=/dev/zero of=/dev/vda bs=1M count=6 conv=fsync && echo w''ritten")
            vmi = until(agent, "full", lambda vmi: reason(vmi, "Paused") == "PausedIOError")
            vmi = until(agent, "full", lambda vmi: volume(vmi).get("reason") == "NoSpace")
            pause = condition(vmi, "Paused")
            assert pause is not None
            assert "volume 'v': " in pause["message"]
            assert "No space left on device" in pause["message"]
            assert not is_true(vmi, "Ready")
            agent.instances.pause("full", namespace="default")
            until(agent, "full", lambda vmi: reason(vmi, "Paused") == "PausedByUser")
            node.run("rm", f"{where}/ballast")
            node.run("mount", "-o", "remount,size=24m", where)
            agent.instances.unpause("full", namespace="default")
            vmi = until(agent, "full", lambda vmi: condition(vmi, "Paused") is None)
            assert volume(vmi).get("reason") is None
            eventually(
                "what was written is written",
                lambda: b"written" in agent.instances.console_log("full", namespace="default"),
            )
        assert int(node.run("stat", "-c", "%b", f"{where}/d.img")) * 512 >= 6 * MIB
        remove_all(agent)


def test_what_keeps_a_guest_from_starting_has_a_name(
    lab_with_agents: Lab, node: Node, agent: Client, shared: Path
) -> None:
    """Missing, of another kind, empty, not permitted, locked by another node; then it starts."""
    disk = shared / "d.img"
    agent.instances.create(with_disk("needy", inside(disk)))
    until(agent, "needy", lambda vmi: reason(vmi, "Synchronized") == "VolumeNotFound")
    disk.mkdir()
    vmi = until(agent, "needy", lambda vmi: reason(vmi, "Synchronized") == "VolumeInvalid")
    assert volume(vmi)["reason"] == "VolumeInvalid"
    disk.rmdir()
    disk.touch()
    until(agent, "needy", lambda vmi: reason(vmi, "Synchronized") == "VolumeTooSmall")
    with client(lab_with_agents.node("b")) as other:
        (shared / "held.img").write_bytes(bytes(MIB))
        other.instances.create(with_disk("owner", inside(shared / "held.img")))
        running(other, "owner")
        (shared / "held.img").replace(disk)
        vmi = until(agent, "needy", lambda vmi: reason(vmi, "Synchronized") == "VolumeLocked")
        assert "another process has the image open" in volume(vmi)["message"]
        where = inside(shared)
        node.run("sh", "-c", f"mount --bind {where} {where} && mount -o remount,bind,ro {where}")
        try:
            until(agent, "needy", lambda vmi: reason(vmi, "Synchronized") == "VolumeNotPermitted")
        finally:
            node.run("umount", where)
        remove_all(other)
    vmi = until(agent, "needy", lambda vmi: is_true(vmi, "Ready"), timeout_s=120)
    assert condition(until(agent, "needy", lambda vmi: volume(vmi).get("reason") is None), "Paused") is None


def test_one_file_has_one_writer_whatever_it_is_called(node: Node, agent: Client, shared: Path) -> None:
    disk = shared / "d.img"
    disk.write_bytes(bytes(MIB))
    (shared / "soft.img").symlink_to("d.img")
    (shared / "folder").symlink_to(".")
    os.link(disk, shared / "hard.img")
    agent.instances.create(with_disk("first", inside(disk)))
    running(agent, "first")
    for other in ("soft.img", "hard.img", "folder/d.img"):
        with pytest.raises(Conflict, match=r"is written, as .*d\.img, by volume 'v' of default/first"):
            agent.instances.create(with_disk("second", f"{inside(shared)}/{other}"))
    node.run("sh", "-c", f"mknod {inside(shared)}/one b 7 77; mknod {inside(shared)}/two b 7 77")
    agent.instances.create(with_disk("third", f"{inside(shared)}/one"))
    with pytest.raises(Conflict, match="default/third"):
        agent.instances.create(with_disk("fourth", f"{inside(shared)}/two"))
