# SPDX-License-Identifier: Apache-2.0
"""The playground itself: nodes on one machine that do not touch it and leave nothing behind."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from launcher.errors import CommandFailed, Conflict, InvalidRequest
from launcher.lab import command
from launcher.lab.lab import Lab, owner_of, sweep
from launcher.lab.node import Node
from launcher.lab.process import ProcessId
from launcher.lab.service import STOP_TIMEOUT_S, Program, Service
from launcher.lab.setup import bridge_mac

pytestmark = pytest.mark.node


def _links() -> set[str]:
    return {path.name for path in Path("/sys/class/net").iterdir()}


def test_a_node_has_a_name_and_an_interface_of_its_own(fresh_lab: Callable[..., Lab]) -> None:
    node = fresh_lab("a", "b").node("a")  # the shared one may have taps of other tests
    assert node.run("hostname").strip() == "a"
    assert node.run("ls", "/sys/class/net").split() == ["br0", "eth0", "lo"]
    assert "10.99.0.2 b\n" in node.run("cat", "/etc/hosts")


def test_nothing_is_made_in_the_machines_own_network(fresh_lab: Callable[..., Lab]) -> None:
    before = _links()
    fresh_lab("a").node("a")
    assert _links() == before


def test_nodes_reach_each_others_libvirtd(node_a: Node, node_b: Node) -> None:
    assert node_a.run("virsh", "-c", f"qemu+tcp://{node_b.ip}/system", "hostname").strip() == "b"


def test_a_node_keeps_its_mac_address_whatever_joins_its_bridge(node_a: Node) -> None:
    """Else a tap with a lower one took it along when it left, or, on both nodes, came between them."""

    def address() -> str:
        return str(json.loads(node_a.run("ip", "-j", "link", "show", "br0"))[0]["address"])

    before = address()
    low = ("address", "00:00:00:00:00:01", "master", "br0")
    node_a.run("ip", "link", "add", "low0", *low, "type", "veth", "peer", "name", "low1")
    joined = address()
    node_a.run("ip", "link", "del", "low0")
    assert joined == before == bridge_mac(node_a.ip)


def test_the_outside_reaches_libvirtd_by_its_socket(node_b: Node) -> None:
    assert command.run(["virsh", "-c", node_b.libvirt_uri, "hostname"]).strip() == b"b"


def test_nodes_see_no_kvm_unless_asked_for(node_a: Node) -> None:
    with pytest.raises(CommandFailed):
        node_a.run("test", "-w", "/dev/kvm")
    assert re.findall(r"<domain type='(\w+)'", node_a.run("virsh", "capabilities")).count("kvm") == 0


def test_paths_of_a_nodes_view_are_found_outside(node_a: Node) -> None:
    node_a.run("sh", "-c", "echo here > /var/lib/launcher/note")
    assert node_a.layout.outside("/var/lib/launcher/note").read_text() == "here\n"
    assert node_a.layout.outside("/usr/bin/env") == Path("/usr/bin/env")


def test_the_cable_can_be_pulled_and_plugged_in(fresh_lab: Callable[..., Lab]) -> None:
    lab = fresh_lab()
    a, b = lab.node("a"), lab.node("b")
    probe = ("timeout", "1", "bash", "-c", f"exec 3<>/dev/tcp/{b.ip}/16509")
    a.run(*probe)
    b.set_link(up=False)
    with pytest.raises(CommandFailed):
        a.run(*probe)
    b.set_link(up=True)
    deadline = time.monotonic() + 10
    while True:
        try:
            a.run(*probe)
            break
        except CommandFailed:
            assert time.monotonic() < deadline


def test_a_rate_cap_is_set_and_taken_away(lab: Lab, node_b: Node) -> None:
    def shape() -> bytes:
        return lab.switch.namespaces.run_net("tc", "qdisc", "show", "dev", "port2")

    node_b.rate(100)
    assert b"rate 100Mbit" in shape()
    node_b.rate(None)
    node_b.rate(None)
    assert b"tbf" not in shape()


def test_libvirtd_can_be_stopped_killed_and_started(fresh_lab: Callable[..., Lab]) -> None:
    node = fresh_lab("solo").node("solo")
    first = node.libvirtd_pid
    node.stop_libvirtd()
    assert node.libvirtd_pid is None
    node.start_libvirtd()
    node.stop_libvirtd(signal.SIGKILL)
    node.start_libvirtd()
    assert node.libvirtd_pid not in (None, first)
    with pytest.raises(Conflict):
        node.start_libvirtd()


def test_a_program_that_stands_still_is_killed_without_delay(node_a: Node, tmp_path: Path) -> None:
    program = Program(
        name="sleep",
        argv=["sleep", "60"],
        output=tmp_path / "log",
        ready=lambda: True,
        ready_timeout_s=10,
        logs=(),
    )
    service = Service(node_a.namespaces, program)
    service.launch()
    process = service.process_id
    assert process is not None
    parent = psutil.Process(psutil.Process(process.pid).ppid())
    process.signal(signal.SIGSTOP)
    deadline = time.monotonic() + 10
    while parent.status() != psutil.STATUS_STOPPED:
        assert time.monotonic() < deadline, "nsenter stops along with what it started"
        time.sleep(0.02)
    began = time.monotonic()
    service.stop(signal.SIGKILL)
    assert time.monotonic() - began < STOP_TIMEOUT_S / 2


def test_closing_ends_everything_and_removes_the_folder(needs_nodes: None) -> None:
    with Lab(names=("a",)) as lab:
        node = lab.node("a")
        holder, libvirtd = node.holder, ProcessId.of(node.libvirtd_pid or 0)
        assert libvirtd is not None
    assert not holder.alive()
    assert not libvirtd.alive()
    assert not lab.dir.exists()


OWNER = """
import signal, sys
from pathlib import Path
from launcher.lab.lab import Lab
lab = Lab(Path(sys.argv[1]), names=("a",))
node = lab.node("a")
print(node.holder.pid, node.libvirtd_pid, flush=True)
signal.pause()
"""


def test_a_killed_owner_leaves_no_process_and_its_folder_is_swept(
    needs_nodes: None, fresh_lab: Callable[..., Lab]
) -> None:
    parent = fresh_lab("spare").dir
    folder = parent / "l-x"
    with subprocess.Popen([sys.executable, "-c", OWNER, str(folder)], stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        pids = [ProcessId.of(int(word)) for word in owner.stdout.readline().split()]
        assert len(pids) == 2
        assert owner_of(folder) == ProcessId.of(owner.pid)
        with pytest.raises(Conflict):
            Lab(folder)
        assert sweep(parent, "l-") == []
        owner.kill()
    for process in pids:
        assert process is not None
        assert process.wait_gone(10)
    assert sweep(parent, "l-") == [folder]
    assert not folder.exists()


def test_bad_names_and_long_folders_are_refused(needs_nodes: None, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="15 lower-case"):
        Lab(names=("a", "B_", "pki"))
    with pytest.raises(InvalidRequest, match="too long"):
        Lab(tmp_path / ("x" * 90))
    with pytest.raises(InvalidRequest, match="this lab's nodes are a"), Lab(names=("a",)) as lab:
        lab.node("b")
    assert list(tmp_path.iterdir()) == []
