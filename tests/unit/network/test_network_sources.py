# SPDX-License-Identifier: Apache-2.0
"""Addresses out of leases and of neighbour tables."""

from __future__ import annotations

from pathlib import Path

from launcher.network.leases import Lease, leases, read_leases
from launcher.network.neighbours import Neighbour, present
from launcher.plan.steps import ServeAddresses

FILE = """duid 00:01:00:01:2f:aa:bb:cc:02:00:00:00:00:01
0 02:00:00:00:00:0A 10.0.2.2 web 01:02:00:00:00:00:0a
1796000000 1234 fd10:0:2::2 web 00:03:00:01:02:00
1796000000 02:00:00:00:00:0a nonsense web *
short line
"""
MAC = "02:00:00:00:00:0a"


def test_leases_of_both_families() -> None:
    assert tuple(read_leases(FILE, "default")) == (
        Lease(network="default", address="10.0.2.2", mac=MAC),
        Lease(network="default", address="fd10:0:2::2"),
    )


def test_without_a_file_there_are_none(tmp_path: Path) -> None:
    step = ServeAddresses(
        owner="u",
        network="default",
        namespace="/ns",
        interface="guest",
        directory=str(tmp_path),
        mac=MAC,
        guests=(),
        gateways=(),
        hostname="web",
    )
    assert leases(step) == ()
    (tmp_path / "leases").write_text(FILE)
    assert [lease.address for lease in leases(step)] == ["10.0.2.2", "fd10:0:2::2"]


def entry(address: str, *, stale: bool = False, age: int = 0) -> Neighbour:
    return Neighbour(mac=MAC, address=address, stale=stale, age=age)


def test_what_was_heard_lately_counts() -> None:
    assert present([entry("192.0.2.1", stale=True, age=9), entry("192.0.2.2")]) == ("192.0.2.2",)
    assert present([entry("2001:db8::1"), entry("fe80::1"), entry("192.0.2.2")]) == (
        *("192.0.2.2", "2001:db8::1", "fe80::1"),
    )


def test_of_what_was_it_is_the_last() -> None:
    old = [entry("192.0.2.1", stale=True, age=900), entry("192.0.2.2", stale=True, age=9)]
    assert present(old) == ("192.0.2.2",)
    assert present([]) == ()
