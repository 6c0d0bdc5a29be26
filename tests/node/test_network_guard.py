# SPDX-License-Identifier: Apache-2.0
"""What a guest says in another's name, frame by frame: it passes without the guard, and not with it."""

from __future__ import annotations

import json
import socket
import struct
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from network_guests import left_on, python
from network_plans import masquerade

from launcher.lab.node import Node
from launcher.plan.steps import AnyStep, CreateNetworkNamespace, CreateTap, GuardLink, encode

pytestmark = pytest.mark.node

DRIVER = Path(__file__).with_name("network_driver.py")
OWN, OTHER = bytes.fromhex("020000000101"), bytes.fromhex("020000000199")
ALL = b"\xff" * 6
GATEWAY4, GUEST4, OTHER4 = (socket.inet_aton(f"10.0.2.{n}") for n in (1, 2, 9))
GATEWAY6, GUEST6, OTHER6 = (socket.inet_pton(socket.AF_INET6, f"fd10:0:2::{n}") for n in (1, 2, 9))
NOBODY4 = bytes(4)
SOLICITED6 = socket.inet_pton(socket.AF_INET6, "ff02::1:ff00:1")
ALL_NODES = socket.inet_pton(socket.AF_INET6, "ff02::1")
ALL_NODES_MAC = bytes.fromhex("333300000001")
ROUTERS_MAC = bytes.fromhex("3333ff000001")
Frames = dict[str, tuple[bytes, bytes]]
"""By name: what the guest says, and a part of what that makes anybody say or hear."""

# Sends each frame into the guest's end of one tap; prints the names of those that had an effect at another.
_SAY = """
import fcntl, json, os, select, struct, subprocess, sys, time
def tap(name):
    made = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(made, 0x400454CA, struct.pack("16sH22s", name.encode(), 0x1002 | 0x4000, b""))
    return made
said = tap(sys.argv[1])
heard = said if sys.argv[2] == sys.argv[1] else tap(sys.argv[2])
def passes(name):
    link = json.loads(subprocess.check_output(("ip", "-j", "-d", "link", "show", name)))[0]
    port = link["linkinfo"].get("info_slave_data", {}).get("state", "forwarding")
    return link["operstate"] == "UP" and port == "forwarding"
deadline = time.monotonic() + 30
while not all(map(passes, sys.argv[1:3])):  # it takes the kernel a moment to notice the tap's other end
    assert time.monotonic() < deadline, "a tap does not come up"
found = []
for name, (frame, wanted) in json.loads(sys.argv[3]).items():
    os.write(said, bytes(10) + bytes.fromhex(frame))
    end = time.monotonic() + 1.0
    while (left := end - time.monotonic()) > 0 and select.select([heard], [], [], left)[0]:
        if bytes.fromhex(wanted) in os.read(heard, 4096)[10:]:
            found.append(name)
            break
print(json.dumps(found))
"""


def checksum(data: bytes) -> int:
    """RFC 1071."""
    data += b"\0" * (len(data) % 2)
    total = sum(int(word) for word in struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def arp(source: bytes, *, hardware: bytes, sender: bytes, target: bytes, operation: int = 1) -> bytes:
    body = struct.pack("!HHBBH", 1, 0x0800, 6, 4, operation) + hardware + sender + bytes(6) + target
    return ALL + source + b"\x08\x06" + body


def ipv4(source: bytes, sender: bytes, target: bytes, protocol: int, body: bytes, *, to: bytes) -> bytes:
    head = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(body), 0, 0, 64, protocol, 0, sender, target)
    head = head[:10] + struct.pack("!H", checksum(head)) + head[12:]
    return to + source + b"\x08\x00" + head + body


def icmp6(source: bytes, sender: bytes, target: bytes, kind: int, rest: bytes, *, to: bytes) -> bytes:
    body = bytes([kind, 0, 0, 0]) + rest
    pseudo = sender + target + struct.pack("!I3xB", len(body), 58)
    body = body[:2] + struct.pack("!H", checksum(pseudo + body)) + body[4:]
    return (
        to + source + b"\x86\xdd" + struct.pack("!IHBB", 6 << 28, len(body), 58, 255) + sender + target + body
    )


def ping(sender: bytes, *, to: bytes) -> bytes:
    echo = struct.pack("!BBHHH", 8, 0, 0, 7, 1)
    echo = echo[:2] + struct.pack("!H", checksum(echo)) + echo[4:]
    return ipv4(OWN, sender, GATEWAY4, 1, echo, to=to)


def solicitation(sender: bytes) -> bytes:
    """Who has the gateway's address? With its own MAC address as an option."""
    return icmp6(OWN, sender, SOLICITED6, 135, bytes(4) + GATEWAY6 + b"\x01\x01" + OWN, to=ROUTERS_MAC)


GATEWAY_MAC = bytes.fromhex("020000000000")
HONEST: Frames = {
    "arp": (arp(OWN, hardware=OWN, sender=GUEST4, target=GATEWAY4), GUEST4),
    "ping": (ping(GUEST4, to=GATEWAY_MAC), GUEST4),
    "nd": (solicitation(GUEST6), GUEST6),
}
SPOOFED: Frames = {
    "mac": (arp(OTHER, hardware=OTHER, sender=GUEST4, target=GATEWAY4), OTHER),
    "arp hardware": (arp(OWN, hardware=OTHER, sender=GUEST4, target=GATEWAY4), OTHER),
    "arp address": (arp(OWN, hardware=OWN, sender=OTHER4, target=GATEWAY4), OTHER4),
    "ip": (ping(OTHER4, to=GATEWAY_MAC), OTHER4),
    "nd": (solicitation(OTHER6), OTHER6),
}


@pytest.fixture
def node(node_a: Node) -> Iterator[Node]:
    """A node that must be left as it was."""
    assert left_on(node_a) == []
    yield node_a
    assert left_on(node_a) == []


def drive(node: Node, verb: str, steps: Sequence[AnyStep]) -> None:
    """Make or release all of ``steps``."""
    inside = "/run/launcher/guarded"
    node.layout.outside(inside).write_text("".join(f"{encode(step)}\n" for step in steps))
    node.run(sys.executable, DRIVER, verb, inside)


def effects(node: Node, said: str, heard: str, frames: Frames) -> list[str]:
    """Which of ``frames``, said into one tap, were noticed at the other."""
    told = {name: (frame.hex(), wanted.hex()) for name, (frame, wanted) in frames.items()}
    return list(json.loads(python(node, _SAY, said, heard, json.dumps(told))))


def stolen(node: Node, steps: Sequence[AnyStep], address: bytes) -> bool:
    """Whether the gateway, which knew the address elsewhere, believes what the guest advertises."""
    space = next(step.path for step in steps if isinstance(step, CreateNetworkNamespace))
    text = socket.inet_ntop(socket.AF_INET6, address)
    inside = ("nsenter", f"--net={space}", "--", "ip", "-6", "neigh")
    node.run(*inside, "replace", text, "lladdr", "02:00:00:00:00:77", "dev", "guest", "nud", "stale")
    override = b"\x20\0\0\0" + address + b"\x02\x01" + OWN
    link_local = socket.inet_pton(socket.AF_INET6, "fe80::1:101")
    advertised = icmp6(OWN, link_local, ALL_NODES, 136, override, to=ALL_NODES_MAC)
    assert effects(node, "lt000000000001", "lt000000000001", {"advertised": (advertised, b"none")}) == []
    return OWN.hex(":") in node.run(*inside, "show", text)


@pytest.mark.parametrize("guarded", [False, True])
def test_behind_masquerade_a_guest_speaks_for_itself_only(node: Node, guarded: bool) -> None:
    steps = [step for step in masquerade() if guarded or not isinstance(step, GuardLink)]
    drive(node, "make", steps)
    try:
        assert effects(node, "lt000000000001", "lt000000000001", HONEST) == list(HONEST)
        assert effects(node, "lt000000000001", "lt000000000001", SPOOFED) == (
            [] if guarded else list(SPOOFED)
        )
        assert stolen(node, steps, OTHER6) is not guarded, "another's address, advertised"
        assert stolen(node, steps, GUEST6), "its own"
    finally:
        drive(node, "release", steps)


def udp_of_a_server() -> bytes:
    return struct.pack("!HHHH", 67, 68, 12, 0) + b"dhcp"


LINK_LOCAL = socket.inet_pton(socket.AF_INET6, "fe80::101")
ON_A_BRIDGE: Frames = {
    name: (frame, frame[14:])
    for name, frame in {
        "other mac": arp(OTHER, hardware=OTHER, sender=OTHER4, target=OTHER4),
        "other arp hardware": arp(OWN, hardware=OTHER, sender=OTHER4, target=OTHER4),
        "dhcp server": ipv4(OWN, OTHER4, b"\xff" * 4, 17, udp_of_a_server(), to=ALL),
        "router": icmp6(OWN, LINK_LOCAL, ALL_NODES, 134, bytes(12), to=ALL_NODES_MAC),
        "redirect": icmp6(OWN, LINK_LOCAL, ALL_NODES, 137, bytes(36), to=ALL_NODES_MAC),
    }.items()
}


@pytest.mark.parametrize("guarded", [False, True])
def test_on_a_bridge_a_guest_keeps_to_its_mac_address(node: Node, guarded: bool) -> None:
    mac = OWN.hex(":")
    owner = "00000000-0000-4000-8000-0000000000aa"
    taps = [CreateTap(owner=owner, network="lan", name=f"lt00000000000{n}", bridge="br0") for n in "ab"]
    guard = [GuardLink(owner=owner, network="lan", link="lt00000000000a", mac=mac)] if guarded else []
    drive(node, "make", [*taps, *guard])
    try:
        own = arp(OWN, hardware=OWN, sender=OTHER4, target=OTHER4)
        told = effects(node, "lt00000000000a", "lt00000000000b", {"own": (own, own[14:]), **ON_A_BRIDGE})
        assert told == (["own"] if guarded else ["own", *ON_A_BRIDGE])
    finally:
        drive(node, "release", [*taps, *guard])
