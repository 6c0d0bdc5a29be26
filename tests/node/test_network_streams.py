# SPDX-License-Identifier: Apache-2.0
"""Connections to real guests through the agent: whoever asks is on no network of the node's."""

from __future__ import annotations

import hashlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from agent_world import client, eventually, phase, running, until, until_gone
from feature_guests import Shell, shell
from network_guests import GET, left_on, masqueraded, wait_lease

from launcher.errors import NotFound, Unavailable, WrongPhase
from launcher.lab.image import Image
from launcher.lab.lab import Lab
from launcher.lab.node import Node

pytestmark = pytest.mark.node

LARGE = 16 << 20


@pytest.fixture(scope="module")
def node(lab_with_agents: Lab) -> Node:
    """A node with an agent."""
    return lab_with_agents.node("a")


@contextmanager
def forwarded(node: Node, name: str, *ports: int) -> Iterator[dict[int, int]]:
    """``launcherctl port-forward`` outside of the node: the local port of each of the guest's."""
    pairs = [f":{port}" for port in ports]
    command = [sys.executable, "-m", "launcher.cli.main", "-s", node.agent_target, "port-forward"]
    with subprocess.Popen(
        [*command, f"vmi/{name}", *pairs, "--address", "127.0.0.1"], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in ports]
        try:
            yield {
                port: int(line.partition(" -> ")[0].rpartition(":")[2])
                for port, line in zip(ports, lines, strict=True)
            }
            process.send_signal(signal.SIGINT)
            assert process.wait(20) == 130
        finally:
            process.kill()


def exchange(port: int, said: bytes) -> bytes:
    """What is answered to ``said``, which is sent while the answer is read."""
    with socket.create_connection(("127.0.0.1", port), timeout=120) as connection:
        writer = threading.Thread(target=_say, args=(connection, said))
        writer.start()
        heard = b"".join(iter(lambda: connection.recv(1 << 16), b""))
        writer.join()
    return heard


def _say(connection: socket.socket, data: bytes) -> None:
    connection.sendall(data)
    connection.shutdown(socket.SHUT_WR)


def sha256(guest: Shell, file: str) -> str:
    """The digest that the guest finds."""
    return guest.run(f"sha256sum {file}").split()[0]


def test_ports_of_a_masqueraded_guest_are_reached(node: Node, guest_image: Image) -> None:
    with client(node) as agent:
        # Only port 80 is forwarded by the node: the agent reaches all of them, from inside.
        manifest = masqueraded(guest_image, "served", ports=(80,))
        manifest["spec"]["domain"]["devices"]["autoattachGraphicsDevice"] = True
        uid = agent.instances.create(manifest)["metadata"]["uid"]
        running(agent, "served")
        said = os.urandom(LARGE)
        with shell(agent, "served") as guest:
            wait_lease(guest)
            guest.run("mkdir -p /www; echo hello >/www/index.html; httpd -p 80 -h /www")
            guest.run(f"dd if=/dev/urandom of=/www/large bs=1M count={LARGE >> 20}")
            guest.run("nc -l -p 7 >/tmp/got & nc -ll -p 8 -e cat &")
            with forwarded(node, "served", 80, 7, 8, 1) as at:
                assert exchange(at[80], GET.encode()).endswith(b"hello\n")
                large = exchange(at[80], b"GET /large HTTP/1.0\r\n\r\n").partition(b"\r\n\r\n")[2]
                assert len(large) == LARGE
                assert hashlib.sha256(large).hexdigest() == sha256(guest, "/www/large")
                assert exchange(at[7], said) == b""
                eventually(
                    "all that was said", lambda: guest.run("stat -c %s /tmp/got") == str(LARGE), timeout_s=20
                )
                assert sha256(guest, "/tmp/got") == hashlib.sha256(said).hexdigest()
                assert exchange(at[8], said[: 1 << 20]) == said[: 1 << 20], "both ways at once"
                with (
                    socket.create_connection(("127.0.0.1", at[1]), timeout=30) as closed,
                    pytest.raises(ConnectionResetError),
                ):
                    closed.recv(1)
                with socket.create_connection(("127.0.0.1", at[8]), timeout=30) as open_one:
                    open_one.sendall(b"x")
                    assert open_one.recv(1) == b"x"
                    stream = agent.streams.port_forward("served", 1, ())
                    with pytest.raises(Unavailable, match=r"refuses connections to port 1 \(10\.0\.2\.2\)"):
                        list(stream)
                    screen = iter(agent.streams.vnc("served", iter(()), namespace="default"))
                    assert next(screen) == b""
                    assert (next(screen) or b"").startswith(b"RFB 003.")
                    with pytest.raises(WrongPhase, match="no slots for USB"):
                        list(agent.streams.usb_redirect("served", ()))
                    guest.type("poweroff -f")
                    with pytest.raises(ConnectionResetError):
                        open_one.recv(1)
        until(agent, "served", lambda vmi: phase(vmi) in ("Succeeded", "Failed"))
        with pytest.raises(WrongPhase, match=r"default/served does not run: it is (Succeeded|Failed)"):
            list(agent.streams.port_forward("served", 80, ()))
        agent.instances.delete("served", namespace="default")
        until_gone(agent, "served")
        with pytest.raises(NotFound):
            list(agent.streams.port_forward("served", 80, ()))
    # A socket that stayed open would keep the namespace, and its half of the links.
    assert left_on(node) == []
    assert uid not in node.run("cat", "/proc/self/mountinfo")
