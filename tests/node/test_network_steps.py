# SPDX-License-Identifier: Apache-2.0
"""Network steps on a real node: made and released twice, killed in the middle of each, and never foreign."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import msgspec
import pytest
from agent_world import eventually
from network_driving import DELAYS_S, drive, killed, looking_after
from network_guests import left_on, python
from network_plans import guarded, masquerade

from launcher.errors import CommandFailed
from launcher.lab.node import Node
from launcher.plan.steps import CreateTap, CreateVeth, ServeAddresses

pytestmark = pytest.mark.node

STEPS = masquerade()


@pytest.fixture
def node(node_a: Node) -> Iterator[Node]:
    """A node that must be left as it was."""
    before = left_on(node_a)
    assert before == []
    yield node_a
    left = left_on(node_a)
    if left:  # a test that failed must not fail the next ones
        drive(node_a, "release", STEPS)
    assert left == []


def shown(node: Node) -> str:
    """What was made, without what the kernel still settles by itself (carriers, link-local addresses)."""
    script = "ip -br link | cut -d' ' -f1; ip -br -4 addr; ip route; nft list ruleset"
    told = re.sub(r" (UP|DOWN|UNKNOWN|LOWERLAYERDOWN) ", " ", node.run("sh", "-c", script))
    return re.sub(r" +", " ", told)


def test_everything_can_be_made_and_released_twice(node: Node) -> None:
    drive(node, "make", STEPS)
    first = shown(node)
    drive(node, "make", STEPS)
    assert shown(node) == first
    drive(node, "release", STEPS)
    drive(node, "release", [step for step in STEPS if not hasattr(step, "mode")])


@pytest.mark.parametrize("at", range(len(STEPS)))
def test_killed_in_the_middle_of_making_a_step(node: Node, at: int) -> None:
    for after_s in DELAYS_S:
        killed(node, "make", STEPS, at=at, after_s=after_s)
        drive(node, "make", STEPS)
        killed(node, "make", STEPS, at=at, after_s=after_s)
        drive(node, "release", STEPS)
        assert left_on(node) == []


@pytest.mark.parametrize("at", range(len(STEPS)))
def test_killed_in_the_middle_of_releasing_a_step(node: Node, at: int) -> None:
    for after_s in DELAYS_S:
        drive(node, "make", STEPS)
        killed(node, "release", STEPS, at=at, after_s=after_s)
        left = [step for step in STEPS if not hasattr(step, "mode")]
        drive(node, "release", left)
        node.run("rm", "-rf", "/run/launcher/n")
        assert left_on(node) == []


def test_neighbours_are_left_alone(node: Node) -> None:
    other = masquerade(2)
    node.run("nft", "add", "table", "inet", "somebodys")
    drive(node, "make", STEPS)
    drive(node, "make", other)
    drive(node, "release", STEPS)
    assert "lu000000000002" in node.run("ip", "-br", "link")
    assert "masquerade" in node.run("nft", "list", "table", "inet", "launcher")
    assert "mirred" in node.run("tc", "filter", "show", "dev", "lt000000000002", "ingress")
    drive(node, "release", other)
    assert node.run("nft", "list", "tables").split() == ["table", "inet", "somebodys"]
    node.run("nft", "delete", "table", "inet", "somebodys")


def test_a_bridge_never_takes_the_address_of_a_tap(node: Node) -> None:
    """It has the lowest one of its ports: others would lose the node along with the guest."""
    node.run("ip", "link", "add", "br7", "type", "bridge")
    high = ("address", "fa:ff:ff:ff:ff:ff")
    node.run("ip", "link", "add", "up7", *high, "master", "br7", "type", "veth", "peer", "name", "out7")
    tap = CreateTap(owner="00000000-0000-4000-8000-000000000007", network="lan", name="lt7", bridge="br7")
    drive(node, "make", [tap])
    addresses = {link["ifname"]: link["address"] for link in json.loads(node.run("ip", "-j", "link"))}
    drive(node, "release", [tap])
    node.run("ip", "link", "del", "br7")
    node.run("ip", "link", "del", "up7")
    assert addresses["br7"] == addresses["up7"]


@pytest.mark.parametrize("kind", [CreateTap, CreateVeth])
def test_a_foreign_link_of_the_same_name_is_refused_and_stays(node: Node, kind: type) -> None:
    name = next(
        step.name for step in STEPS if isinstance(step, CreateTap | CreateVeth) and isinstance(step, kind)
    )
    node.run("ip", "link", "add", name, "type", "bridge")
    with pytest.raises(CommandFailed, match="is not this instance's"):
        drive(node, "make", STEPS)
    drive(node, "release", STEPS)
    assert (
        json.loads(node.run("ip", "-j", "-d", "link", "show", name))[0]["linkinfo"]["info_kind"] == "bridge"
    )
    node.run("ip", "link", "del", name)


def _rules(node: Node) -> list[str]:
    """The lines of all rules; tables that are made again come in another order."""
    return sorted(node.run("nft", "list", "ruleset").splitlines())


@pytest.mark.parametrize("verb", ["make", "adopt"])
def test_what_somebody_flushes_is_made_again(node: Node, verb: str) -> None:
    steps = [*STEPS, *guarded(2)]
    drive(node, "make", steps)
    whole = _rules(node)
    assert "table netdev launcher_00000000-0000-4000-8000-000000000002 {" in whole
    with looking_after(node, verb, steps):
        for harm in (
            ("flush", "ruleset"),
            ("delete", "table", "inet", "launcher"),
            ("flush", "table", "netdev", "launcher_00000000-0000-4000-8000-000000000002"),
        ):
            node.run("nft", *harm)
            eventually("the rules", lambda: _rules(node) == whole)
        shown_rules = node.run("nft", "-a", "list", "chain", "inet", "launcher", "postrouting")
        handle = re.findall(r"masquerade # handle ([0-9]+)", shown_rules)[0]
        node.run("nft", "delete", "rule", "inet", "launcher", "postrouting", "handle", handle)
        eventually("the rule", lambda: _rules(node) == whole)
    drive(node, "release", steps)


# A DHCPv4 exchange from the guest's end of a tap, with what was offered as JSON.
_ASK = """
import fcntl, json, os, select, socket, struct, sys, time
tap = os.open("/dev/net/tun", os.O_RDWR)
fcntl.ioctl(tap, 0x400454CA, struct.pack("16sH22s", sys.argv[1].encode(), 0x1002 | 0x4000, b""))
mac = bytes.fromhex(sys.argv[2].replace(":", ""))
options = bytes.fromhex(sys.argv[3])
def ask(kind):
    dhcp = struct.pack("!BBBBIHH16x16s192x4s", 1, 1, 6, 0, 7, 0, 0x8000, mac, b"\\x63\\x82\\x53\\x63")
    dhcp += bytes([53, 1, kind]) + options + b"\\xff"
    udp = struct.pack("!HHHH", 68, 67, 8 + len(dhcp), 0) + dhcp
    head = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(udp), 0, 0, 64, 17, 0, bytes(4), b"\\xff" * 4)
    total = sum(struct.unpack("!10H", head))
    total = (total & 0xFFFF) + (total >> 16)
    head = head[:10] + struct.pack("!H", ~total & 0xFFFF) + head[12:]
    frame = b"\\xff" * 6 + mac + b"\\x08\\x00" + head + udp
    os.write(tap, bytes(10) + frame)
deadline, kind = time.monotonic() + 10, 1
ask(kind)
while time.monotonic() < deadline:
    if not select.select([tap], [], [], 0.5)[0]:
        ask(kind)
        continue
    frame = os.read(tap, 4096)[10:]
    if frame[12:14] != b"\\x08\\x00" or frame[23] != 17 or frame[34:36] != b"\\0\\x43":
        continue
    reply, found, at = frame[42:], {}, 240
    while reply[at] != 255:
        if reply[at]:
            found[reply[at]] = reply[at + 2 : at + 2 + reply[at + 1]].hex()
            at += reply[at + 1] + 1
        at += 1
    print(json.dumps({"address": socket.inet_ntoa(reply[16:20]), **found}))
    break
"""


def test_dhcp_tells_what_the_manifest_says_to_whoever_boots(node: Node) -> None:
    told = {
        "boot_file": "pxe linux,0",
        "private": ((240, "a,b"), (241, "7")),
        "mtu": 1400,
        "subdomain": None,
        "nameservers": ("192.0.2.53", "192.0.2.54", "2001:db8::53"),
        "node_nameservers": False,
        "search": ("a.example", "longer.example"),
        "node_search": False,
        "ntp_servers": ("192.0.2.123",),
        "tftp_server": "boot.example",
    }
    steps = [msgspec.structs.replace(s, **told) if isinstance(s, ServeAddresses) else s for s in STEPS]
    served = next(step for step in steps if isinstance(step, ServeAddresses))
    drive(node, "make", steps)
    for identifier in (
        "",
        "3d03616263",
        "3d0378797a",
    ):  # a boot loader and a system each have one of their own
        found = json.loads(python(node, _ASK, "lt000000000001", served.mac, identifier))
        assert found["address"] == "10.0.2.2"
        assert bytes.fromhex(found["67"]).rstrip(b"\0") == b"pxe linux,0"
        assert bytes.fromhex(found["240"]) == b"a,b"
        assert bytes.fromhex(found["241"]) == b"7"
        assert int(found["26"], 16) == 1400
        assert found["121"] == "000a000201"
        assert (found["1"], found["3"]) == ("ffffff00", "0a000201")
        assert found["6"] == "c0000235" + "c0000236"
        assert bytes.fromhex(found["15"]) == b"longer.example"
        assert bytes.fromhex(found["119"]).startswith(b"\x01a\x07example\x00\x06longer")
        assert found["42"] == "c000027b"
        assert bytes.fromhex(found["66"]).rstrip(b"\0") == b"boot.example"
        assert bytes.fromhex(found["12"]) == b"g1"
    drive(node, "release", steps)
