# SPDX-License-Identifier: Apache-2.0
"""What is written for dnsmasq: the options, and that no text of a manifest becomes one."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from launcher.errors import NetworkError
from launcher.network.dnsmasq_conf import dnsmasq_conf
from launcher.network.resolver import Resolver, parse_resolv_conf, with_subdomain
from launcher.plan.steps import ServeAddresses

STEP = ServeAddresses(
    owner="u",
    network="n",
    namespace="/run/x/ns",
    interface="guest",
    directory="/run/x",
    mac="02:00:00:00:00:01",
    guests=("10.0.2.2/24", "fd10:0:2::2/120"),
    gateways=("10.0.2.1", "fd10:0:2::1"),
    hostname="guest-1",
)
RESOLVER = Resolver(
    nameservers=("192.0.2.53", "2001:db8::53"), search=("ns.svc.cluster.local", "cluster.local")
)


def lines(step: ServeAddresses = STEP, resolver: Resolver = RESOLVER) -> list[str]:
    return dnsmasq_conf(step, resolver).splitlines()


def test_a_guest_of_both_families() -> None:
    assert lines()[lines().index("quiet-ra") + 1 :] == [
        "dhcp-range=10.0.2.2,10.0.2.2,255.255.255.0,infinite",
        "dhcp-range=fd10:0:2::2,fd10:0:2::2,120,2m",
        "enable-ra",
        "ra-param=guest,60,1800",
        "dhcp-host=02:00:00:00:00:01,id:*,10.0.2.2,[fd10:0:2::2],guest-1",
        "dhcp-option-force=3,10.0.2.1",
        "dhcp-option-force=121,0.0.0.0/0,10.0.2.1",
        "dhcp-option-force=6,192.0.2.53",
        "dhcp-option-force=15,ns.svc.cluster.local",
        "dhcp-option-force=119,ns.svc.cluster.local,cluster.local",
        "dhcp-option=option6:dns-server,[2001:db8::53]",
        "dhcp-option=option6:domain-search,ns.svc.cluster.local,cluster.local",
    ]


def test_what_a_manifest_adds() -> None:
    step = replace(
        STEP,
        guests=("10.0.2.2/24",),
        gateways=("10.0.2.1",),
        mtu=1400,
        ntp_servers=("192.0.2.1", "192.0.2.2"),
        tftp_server="boot.example",
        boot_file="pxe,linux 0",
        private=((240, "a,b\ndhcp-script=/bin/sh"), (241, "7")),
    )
    assert lines(step)[-6:] == [
        "dhcp-option-force=26,1400",
        "dhcp-option-force=42,192.0.2.1,192.0.2.2",
        'dhcp-option-force=66,"boot.example"',
        'dhcp-option-force=67,"pxe,linux 0"',
        "dhcp-option-force=240,61:2c:62:0a:64:68:63:70:2d:73:63:72:69:70:74:3d:2f:62:69:6e:2f:73:68",
        'dhcp-option-force=241,"7"',
    ]


@pytest.mark.parametrize(
    "change",
    [
        {"mac": "02:00:00:00:00:01,10.0.2.9"},
        {"hostname": "a,b"},
        {"interface": "x\ny"},
        {"directory": "/run/x\nuser=root"},
        {"boot_file": 'a"\nuser=root'},
        {"tftp_server": "a\\b"},
        {"private": ((240, "x" * 256),)},
    ],
)
def test_what_would_become_an_option_of_its_own_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(NetworkError):
        dnsmasq_conf(replace(STEP, **change), RESOLVER)


def test_a_search_domain_that_would_become_an_option_is_refused() -> None:
    with pytest.raises(NetworkError):
        dnsmasq_conf(STEP, Resolver(search=("a\nuser=root",)))


@settings(deadline=None)
@given(st.text(max_size=60), st.text(max_size=60))
def test_no_text_adds_a_line(boot: str, private: str) -> None:
    step = replace(STEP, boot_file=boot, private=((240, private),))
    expected = len(lines(replace(STEP, boot_file="x", private=((240, "x"),))))
    try:
        text = dnsmasq_conf(step, RESOLVER)
    except NetworkError:
        return
    assert len(text.split("\n")) == expected + 1
    assert len(text.splitlines()) == expected


def test_dnsmasq_itself_takes_it(tmp_path: Path) -> None:
    program = shutil.which("dnsmasq", path="/usr/sbin:/usr/bin")
    assert program is not None, "dnsmasq-base is among the packages of `make deps`"
    conf = tmp_path / "conf"
    conf.write_text(
        dnsmasq_conf(replace(STEP, directory=str(tmp_path), boot_file="a b,c", mtu=1400), RESOLVER)
    )
    done = subprocess.run(
        [program, "--test", f"--conf-file={conf}"], capture_output=True, text=True, timeout=30
    )
    assert "syntax check OK" in done.stderr


def test_a_resolver_without_what_only_the_node_reaches() -> None:
    servers = "nameserver 127.0.0.53\nnameserver 192.0.2.53\nnameserver ::1"
    text = f"# x\n{servers}\nsearch A.example. b.example -bad-\noptions x"
    assert parse_resolv_conf(text) == Resolver(nameservers=("192.0.2.53",), search=("a.example", "b.example"))


@pytest.mark.parametrize(
    ("search", "subdomain", "listed"),
    [
        ((), None, ("cluster.local",)),
        (("a",), None, ("a",)),
        (("a", "ns.svc.x", "svc.x"), "sub", ("sub.ns.svc.x", "a", "ns.svc.x", "svc.x")),
        (("sub.ns.svc.x",), "sub", ("sub.ns.svc.x",)),
        (("a",), "sub", ("a",)),
    ],
)
def test_a_subdomain_is_searched_first(
    search: tuple[str, ...], subdomain: str | None, listed: tuple[str, ...]
) -> None:
    assert with_subdomain(search, subdomain) == listed


def test_a_link_in_no_network_of_the_guests() -> None:
    step = replace(
        STEP,
        guests=("10.244.7.5/24",),
        gateways=(),
        routes=(("10.250.0.0/16", "10.244.7.2"), ("169.254.1.1/32", ""), ("0.0.0.0/0", "10.244.7.1")),
    )
    told = lines(step)
    assert "shared-network=guest,10.244.7.5" in told
    assert "dhcp-ignore=tag:!known" in told
    assert "dhcp-option-force=3,10.244.7.1" in told
    assert (
        "dhcp-option-force=121,10.250.0.0/16,10.244.7.2,169.254.1.1/32,0.0.0.0,0.0.0.0/0,10.244.7.1" in told
    )


def test_no_router_is_told_where_no_route_leads_out() -> None:
    told = lines(replace(STEP, guests=("10.244.7.5/24",), gateways=()))
    assert "dhcp-option=3" in told
    assert "dhcp-option=121" in told
