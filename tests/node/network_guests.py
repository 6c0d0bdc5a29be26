# SPDX-License-Identifier: Apache-2.0
"""What tests of networks share: guests with interfaces, the world outside of the nodes, and packets."""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from agent_world import eventually
from feature_guests import Object, Shell, guest

from launcher.lab.image import INITRD_PATH, KERNEL_PATH, Image
from launcher.lab.lab import Lab
from launcher.lab.node import Node
from launcher.lab.switch import BRIDGE

OUTSIDE, OUTSIDE6 = "10.99.0.254", "fd99::254"
"""Addresses in the switch's own namespace: beyond every node."""
NAME = "outside.example"
PORT = 8080


def networked(
    image: Image, name: str, interfaces: Mapping[str, Object], networks: Mapping[str, Object], **spec: Any
) -> Object:
    """A Linux guest with a shell whose first interface asks for a lease."""
    return guest(
        name,
        memory="128Mi",
        domain={
            "firmware": {
                "kernelBoot": {
                    "kernelArgs": "console=ttyS0 quiet panic=1 shell=1 tick=0 net=dhcp",
                    "container": {
                        "image": image.reference,
                        "kernelPath": KERNEL_PATH,
                        "initrdPath": INITRD_PATH,
                    },
                }
            }
        },
        devices={"interfaces": [{"name": nic, **fields} for nic, fields in interfaces.items()]},
        networks=[{"name": network, **fields} for network, fields in networks.items()],
        **spec,
    )


def masqueraded(image: Image, name: str, *, ports: tuple[int, ...] = (), **spec: Any) -> Object:
    """A guest behind masquerade."""
    nic = {"masquerade": {}, "ports": [{"port": port} for port in ports]}
    return networked(image, name, {"default": nic}, {"default": {"pod": {}}}, **spec)


def bridged(image: Image, name: str, **nic: Any) -> Object:
    """A guest on the network that all nodes of a lab share."""
    networks = {"lan": {"multus": {"networkName": "lab"}}}
    return networked(image, name, {"lan": {"bridge": {}, **nic}}, networks)


def python(node: Node, script: str, *arguments: str, timeout_s: float = 60.0) -> str:
    """What a Python script prints that runs inside the node."""
    return node.run(sys.executable, "-c", textwrap.dedent(script), *arguments, timeout_s=timeout_s).strip()


def whoami(host: str) -> str:
    """A command of the guest that prints the address under which the world beyond sees it; nothing when it
    does not answer. (busybox's wget, linked statically, cannot resolve even a numeric address.)"""
    return f"printf 'GET / HTTP/1.0\\r\\n\\r\\n' | nc -w 5 {host} {PORT} 2>/dev/null | tail -n 1"


def wait_lease(guest: Shell) -> None:
    """Wait until the guest has the address that masquerade gives."""
    eventually("a lease", lambda: "10.0.2.2/24" in guest.run("ip addr show eth0"), timeout_s=120)


GET = "GET / HTTP/1.0\r\n\r\n"
FETCH = """
    import socket, sys
    host, port, text = sys.argv[1:]
    with socket.create_connection((host, int(port)), timeout=5) as connection:
        connection.sendall(text.encode())
        connection.shutdown(socket.SHUT_WR)
        answer = b"".join(iter(lambda: connection.recv(4096), b""))
    print(answer.decode())
"""


def say(node: Node, host: str, port: int, text: str = "") -> str:
    """What is answered from ``host`` to the node over TCP; fails when nothing is."""
    return python(node, FETCH, host, str(port), text)


@contextmanager
def outside(lab: Lab) -> Iterator[None]:
    """The world beyond the nodes: it answers HTTP on ``PORT`` with the client's address, and DNS."""
    space = lab.switch.namespaces
    for address in (f"{OUTSIDE}/24", f"{OUTSIDE6}/64"):
        space.run_net("ip", "addr", "replace", address, "dev", BRIDGE, "nodad")
    for node in lab.nodes.values():
        number = node.ip.rpartition(".")[2]
        node.run("ip", "addr", "replace", f"fd99::{number}/64", "dev", "br0", "nodad")
    with _server(lab):
        yield


@contextmanager
def _server(lab: Lab) -> Iterator[None]:
    import subprocess

    process = subprocess.Popen(
        ["nsenter", f"--net=/proc/{lab.switch.namespaces.pid}/ns/net", "--", sys.executable, "-c", _SERVE,
         str(PORT), OUTSIDE, NAME],
        stdout=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield
    finally:
        process.kill()
        process.wait(10)
        if process.stdout is not None:
            process.stdout.close()


# Answers every DNS question for an A record with its own address, and every HTTP request with the client's.
_SERVE = """
import socket, sys, threading
port, address, name = int(sys.argv[1]), sys.argv[2], sys.argv[3]
dns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
dns.bind((address, 53))
def answer():
    while True:
        question, client = dns.recvfrom(512)
        labels = b"".join(bytes([len(l)]) + l.encode() for l in name.split(".")) + b"\\0"
        is_a = question[12:].startswith(labels + b"\\0\\1")
        head = question[:2] + b"\\x85\\x80\\0\\1" + (b"\\0\\1" if is_a else b"\\0\\0") + b"\\0\\0\\0\\0"
        end = 12 + question[12:].index(b"\\0") + 5
        record = b"\\xc0\\x0c\\0\\1\\0\\1\\0\\0\\0\\x3c\\0\\4" + socket.inet_aton(address) if is_a else b""
        dns.sendto(head + question[12:end] + record, client)
threading.Thread(target=answer, daemon=True).start()
server = socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True)
print("ready", flush=True)
while True:
    connection, client = server.accept()
    with connection:
        connection.settimeout(5)
        try:
            connection.recv(4096)
            body = client[0].removeprefix("::ffff:")
            connection.sendall(f"HTTP/1.0 200 OK\\r\\nContent-Length: {len(body)}\\r\\n\\r\\n{body}".encode())
        except OSError:
            pass
"""


def addresses(vmi: Object) -> list[str]:
    """The addresses that the status shows for the first interface."""
    return list(vmi["status"]["interfaces"][0].get("ipAddresses", ()))


def left_on(node: Node) -> list[str]:
    """Links, tables, namespaces and servers of guests that are on the node."""
    links = [
        link["ifname"]
        for link in json.loads(node.run("ip", "-j", "link"))
        if link["ifname"][:2] in ("lt", "lw", "lu")
    ]
    tables = [line for line in node.run("nft", "list", "tables").splitlines() if "launcher" in line]
    mounts = [
        line.split()[4] for line in node.run("cat", "/proc/self/mountinfo").splitlines() if "nsfs" in line
    ]
    servers = [
        line for line in node.run("ps", "-e", "-o", "args").splitlines() if line.startswith("dnsmasq ")
    ]
    folder = node.layout.outside("/run/launcher/n")
    folders = [str(path) for path in sorted(folder.iterdir())] if folder.exists() else []
    return [*links, *tables, *mounts, *servers, *folders]
