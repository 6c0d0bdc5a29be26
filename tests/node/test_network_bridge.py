# SPDX-License-Identifier: Apache-2.0
"""Guests on a bridge that two nodes share: they talk to each other, keep to their MAC, and keep their
connections when they move."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest
from agent_world import client, condition, eventually, migrated, migration, running, until_gone
from feature_guests import Object, Shell, shell
from network_guests import (
    FETCH,
    GET,
    OUTSIDE,
    addresses,
    bridged,
    left_on,
    masqueraded,
    outside,
    say,
    wait_lease,
    whoami,
)

from launcher.errors import CommandFailed, Exhausted
from launcher.lab.image import Image
from launcher.lab.lab import Lab
from launcher.lab.namespaces import Namespaces

pytestmark = pytest.mark.node


@pytest.fixture(scope="module")
def lab(lab_with_agents: Lab) -> Iterator[Lab]:
    """Two nodes with agents, and a world outside."""
    with outside(lab_with_agents):
        yield lab_with_agents


def at(image: Image, name: str, address: str, **nic: object) -> Object:
    """A bridged guest with that address: the nodes' network has no DHCP server of its own."""
    manifest = bridged(image, name, **nic)
    boot = manifest["spec"]["domain"]["firmware"]["kernelBoot"]
    boot["kernelArgs"] = boot["kernelArgs"].replace("net=dhcp", f"net={address}/24")
    return manifest


def test_guests_of_one_bridge_talk_on_one_node_and_across_two(lab: Lab, guest_image: Image) -> None:
    a, b = lab.node("a"), lab.node("b")
    with client(a) as on_a, client(b) as on_b:
        on_a.instances.create(at(guest_image, "one", "10.99.0.11"))
        on_a.instances.create(at(guest_image, "two", "10.99.0.12"))
        on_b.instances.create(at(guest_image, "three", "10.99.0.13"))
        for agent, name in ((on_a, "one"), (on_a, "two"), (on_b, "three")):
            running(agent, name)
        for agent, name in ((on_a, "two"), (on_b, "three")):
            with shell(agent, name) as guest:
                guest.run(f"mkdir -p /www; echo {name} >/www/index.html; httpd -p 80 -h /www")
        with shell(on_a, "one") as guest:
            for address, name in (("10.99.0.12", "two"), ("10.99.0.13", "three")):
                fetch = whoami(address).replace(" 8080 ", " 80 ")
                eventually(f"an answer of {name}", partial(_answers, guest, fetch, name))
        for agent, name in ((on_a, "one"), (on_a, "two"), (on_b, "three")):
            agent.instances.delete(name, namespace="default")
            until_gone(agent, name)
    assert left_on(a) == []
    assert left_on(b) == []


def test_a_connection_survives_the_migration_of_a_bridged_guest(
    lab: Lab, guest_image: Image, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = lab.node("a"), lab.node("b")
    with client(a) as on_a, client(b) as on_b:
        on_a.instances.create(at(guest_image, "mover", "10.99.0.21"))
        before = running(on_a, "mover")
        with shell(on_a, "mover") as guest:
            guest.run("nc -ll -p 7 -e cat >/dev/null 2>&1 &")
        with talking(lab, "10.99.0.21") as conversation:
            on_a.migrations.create(migration("mover"), target="b")
            report = migrated(on_a, "move-mover").report
            assert report.succeeded, report.reason
            running(on_b, "mover")
            told = conversation.end()
        assert told["error"] == ""
        assert told["echoes"] > 50
        assert told["longest_ms"] < 10_000
        with capsys.disabled():
            print(f"\nTCP stalled {told['longest_ms']:.0f} ms, downtime by libvirt {report.downtime_ms} ms")
        after = running(on_b, "mover")
        assert after["status"]["interfaces"][0]["mac"] == before["status"]["interfaces"][0]["mac"]
        until_gone(on_a, "mover")
        assert left_on(a) == []
        on_b.instances.delete("mover", namespace="default")
        until_gone(on_b, "mover")
    assert left_on(b) == []


def test_a_masqueraded_guest_keeps_its_address_and_is_reached_on_its_new_node(
    lab: Lab, guest_image: Image
) -> None:
    a, b = lab.node("a"), lab.node("b")
    with client(a) as on_a, client(b) as on_b:
        manifest = masqueraded(guest_image, "nomad", ports=(80, 81))
        manifest["metadata"]["annotations"] = {"launcher/node-ports": "30080:80,81"}
        on_a.instances.create(manifest)
        chosen = node_ports(running(on_a, "nomad"))
        assert chosen[80] == 30080
        with shell(on_a, "nomad") as guest:
            wait_lease(guest)
            assert guest.run(whoami(OUTSIDE)) == a.ip
            guest.run("mkdir -p /www; echo still here >/www/index.html; httpd -p 80 -h /www")
            guest.run("ip addr add fd10:0:2::2/120 dev eth0")
            guest.run("mkdir /two; echo eighty-one >/two/index.html; httpd -p 81 -h /two")
            beyond = lab.switch.namespaces
            for address in (a.ip, f"fd99::{a.ip.rpartition('.')[2]}"):
                eventually(
                    "an answer by the node's port", partial(_says, beyond, address, 30080, "still here")
                )
            assert ask(beyond, a.ip, chosen[81]).endswith("eighty-one")
            assert say(a, a.ip, 30080, GET).endswith("still here"), "from the node itself"
        other = masqueraded(guest_image, "rival", ports=(80,))
        other["metadata"]["annotations"] = {"launcher/node-ports": "30080:80"}
        with pytest.raises(Exhausted, match="port 30080/tcp of the node is another instance's"):
            on_a.instances.create(other)
        on_a.migrations.create(migration("nomad"), target="b")
        report = migrated(on_a, "move-nomad").report
        assert report.succeeded, report.reason
        there = addresses(running(on_b, "nomad"))
        for address in there[:1]:
            assert say(b, address, 80, GET).endswith("still here")
        moved = node_ports(running(on_b, "nomad"))
        assert moved[80] == 30080
        assert ask(lab.switch.namespaces, b.ip, 30080).endswith("still here")
        assert ask(lab.switch.namespaces, b.ip, moved[81]).endswith("eighty-one")
        with shell(on_b, "nomad", up=True) as guest:
            assert guest.run(whoami(OUTSIDE)) == b.ip
            assert "10.0.2.2/24" in guest.run("ip addr show eth0")
        until_gone(on_a, "nomad")
        assert left_on(a) == []
        on_b.instances.delete("nomad", namespace="default")
        until_gone(on_b, "nomad")
    assert left_on(b) == []


def node_ports(vmi: Object) -> dict[int, int]:
    """The node's port for each port of the guest, as the status tells."""
    told = (condition(vmi, "NodePorts") or {})["message"]
    found = re.findall(r"(\d+) -> (\d+)/tcp", told)
    return {int(guest): int(node) for node, guest in found}


def ask(space: Namespaces, host: str, port: int) -> str:
    """What is answered to somebody beyond the nodes."""
    script = textwrap.dedent(FETCH)
    return space.run_net(sys.executable, "-c", script, host, str(port), GET).decode().strip()


def _says(space: Namespaces, host: str, port: int, expected: str) -> bool:
    try:
        return ask(space, host, port).endswith(expected)
    except CommandFailed:
        return False


def _answers(guest: Shell, fetch: str, expected: str) -> bool:
    return guest.run(fetch) == expected


# Says something every 10 ms and waits for its echo, until its stdin ends; then tells the longest wait.
_TALK = """
import json, socket, sys, threading, time
ended = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
deadline = time.monotonic() + 30
while True:
    try:
        connection = socket.create_connection((sys.argv[1], 7), timeout=30)
        break
    except OSError:
        assert time.monotonic() < deadline
        time.sleep(0.1)
connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
echoes, longest, error = 0, 0.0, ""
try:
    while not ended.is_set():
        began = time.monotonic()
        connection.sendall(b"12345678")
        got = b""
        while len(got) < 8:
            data = connection.recv(8 - len(got))
            if not data:
                raise OSError("closed")
            got += data
        longest = max(longest, time.monotonic() - began)
        if echoes == 0:
            print("talking", flush=True)
        echoes += 1
        ended.wait(0.01)
except OSError as failure:
    error = str(failure)
print(json.dumps({"echoes": echoes, "longest_ms": longest * 1000, "error": error}), flush=True)
"""


class Conversation:
    """A client beyond the nodes that talks to a guest."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def end(self) -> Object:
        """How it went."""
        told, _ = self._process.communicate(timeout=60)
        return dict(json.loads(told.splitlines()[-1]))


@contextmanager
def talking(lab: Lab, address: str) -> Iterator[Conversation]:
    """A conversation with the echo server of a guest, from outside of the nodes."""
    enter = ["nsenter", f"--net=/proc/{lab.switch.namespaces.pid}/ns/net", "--"]
    process = subprocess.Popen(
        [*enter, sys.executable, "-c", _TALK, address],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "talking\n"
        yield Conversation(process)
    finally:
        process.kill()
        process.communicate()
