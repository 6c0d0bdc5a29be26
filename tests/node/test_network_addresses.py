# SPDX-License-Identifier: Apache-2.0
"""What a guest is told of IPv6, word by word, as its network card sees it: advertisements and DHCPv6."""

from __future__ import annotations

import json
from collections.abc import Iterator

import msgspec
import pytest
from network_driving import drive
from network_guests import left_on, python
from network_plans import masquerade

from launcher.lab.node import Node
from launcher.plan.steps import AnyStep, ServeAddresses

pytestmark = pytest.mark.node

STEPS: list[AnyStep] = [
    msgspec.structs.replace(
        step, mtu=1400, nameservers=("2001:db8::53", "192.0.2.53"), search=("a.example",), node_search=False
    )
    if isinstance(step, ServeAddresses)
    else step
    for step in masquerade()
]

# A guest's end of a tap that solicits a router and an address, and answers who asks for its own.
_ASK = """
import fcntl, ipaddress, json, os, select, struct, sys, time
tap = os.open("/dev/net/tun", os.O_RDWR)
fcntl.ioctl(tap, 0x400454CA, struct.pack("16sH22s", sys.argv[1].encode(), 0x1002 | 0x4000, b""))
mac, duid = bytes.fromhex(sys.argv[2].replace(":", "")), bytes.fromhex(sys.argv[3])
ip = lambda text: ipaddress.IPv6Address(text).packed
own = ip("fe80::")[:8] + bytes([mac[0] ^ 2]) + mac[1:3] + b"\\xff\\xfe" + mac[3:]
def send(to, protocol, body, at):
    summed = own + to + body + b"\\0" * (len(body) % 2)
    total = sum(struct.unpack(f"!{len(summed) // 2}H", summed))
    total += len(body) + protocol
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    body = body[:at] + struct.pack("!H", ~total & 0xFFFF or 0xFFFF) + body[at + 2:]
    ether = b"\\x33\\x33" + to[12:] if to[0] == 255 else bytes.fromhex("020000000000")
    head = struct.pack("!IHBB", 6 << 28, len(body), protocol, 255) + own + to
    os.write(tap, bytes(10) + ether + mac + b"\\x86\\xdd" + head + body)
def option(number, data):
    return struct.pack("!HH", number, len(data)) + data
def solicit():
    send(ip("ff02::2"), 58, struct.pack("!BBHI", 133, 0, 0, 0) + b"\\x01\\x01" + mac, 2)
    asked = option(1, duid) + option(3, struct.pack("!III", 7, 0, 0)) + option(14, b"")
    asked += option(6, b"\\0\\x17\\0\\x18")
    body = struct.pack("!I", 1 << 24 | 77) + option(8, b"\\0\\0") + asked
    send(ip("ff02::1:2"), 17, struct.pack("!HHHH", 546, 547, 8 + len(body), 0) + body, 6)
def options(data, head, unit, offset):
    found = {}
    while len(data) >= head:
        number, length = struct.unpack("!BB" if head == 2 else "!HH", data[:head])
        length = length * unit - offset
        found.setdefault(number, data[head:head + length])
        data = data[head + length:]
    return found
told, deadline = {}, time.monotonic() + 20
while len(told) < 2 and time.monotonic() < deadline:
    if not select.select([tap], [], [], 0.5)[0]:
        solicit()
        continue
    frame = os.read(tap, 4096)[10:]
    if frame[12:14] != b"\\x86\\xdd":
        continue
    source, protocol, body = frame[22:38], frame[20], frame[54:]
    if protocol == 58 and body[0] == 135 and body[8:24] == own:
        send(source, 58, struct.pack("!BBHI", 136, 0, 0, 0x60000000) + own + b"\\x02\\x01" + mac, 2)
    elif protocol == 58 and body[0] == 134:
        parts = options(body[16:], 2, 8, 2)
        told["router"] = {
            "from": str(ipaddress.IPv6Address(source)), "flags": body[5],
            "lifetime": struct.unpack("!H", body[6:8])[0],
            "mtu": struct.unpack("!I", parts[5][2:6])[0] if 5 in parts else 0,
            "prefix_flags": parts[3][1] if 3 in parts else -1,
        }
    elif protocol == 17 and body[8] == 7:
        parts = options(body[12:], 4, 1, 0)
        address = options(parts[3][12:], 4, 1, 0)
        told["dhcp"] = {
            "address": str(ipaddress.IPv6Address(address[5][:16])) if 5 in address else "",
            "servers": str(ipaddress.IPv6Address(parts[23][:16])), "search": parts[24].hex(),
        }
print(json.dumps(told))
"""


@pytest.fixture
def node(node_a: Node) -> Iterator[Node]:
    """A node with the network of a guest behind masquerade."""
    drive(node_a, "make", STEPS)
    yield node_a
    drive(node_a, "release", STEPS)
    assert left_on(node_a) == []


def test_an_ipv6_guest_needs_no_static_route_and_no_static_address(node: Node) -> None:
    served = next(step for step in STEPS if isinstance(step, ServeAddresses))
    duid = "00030001" + served.mac.replace(":", "")
    told = json.loads(python(node, _ASK, "lt000000000001", served.mac, duid))
    router = told["router"]
    assert router["from"] == "fe80::ff:fe00:0", "the same on every node, from the gateway's MAC address"
    assert router["lifetime"] == 1800
    assert router["flags"] & 0x80, "addresses are managed: there is DHCPv6"
    assert router["mtu"] == 1400
    assert router["prefix_flags"] & 0x40 == 0, "a guest makes no address of its own, which would be dropped"
    assert told["dhcp"] == {
        "address": "fd10:0:2::2",
        "servers": "2001:db8::53",
        "search": b"\x01a\x07example\x00".hex(),
    }
