# SPDX-License-Identifier: Apache-2.0
"""Rulesets as data: what they say, and that they name no table but ours."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.network.ruleset import (
    Command,
    filter_rules,
    pool_rules,
    removal,
    translation_rules,
)
from launcher.plan.steps import FilterTap, ForwardedPorts, SharePool, TranslateAddresses

MAC = "02:00:00:00:00:01"


def translation(*ports: ForwardedPorts) -> TranslateAddresses:
    return TranslateAddresses(
        owner="u",
        network="n",
        namespace="/ns",
        inside="guest",
        outside="uplink",
        guests=("10.0.2.2", "fd10:0:2::2"),
        outer=("100.64.0.9", "fd64::9"),
        ports=ports,
    )


def guarded(*addresses: str, wire: str | None = "w0") -> FilterTap:
    return FilterTap(owner="u", network="n", tap="t0", mac=MAC, addresses=addresses, wire=wire)


def rules(commands: list[Command], chain: str) -> list[str]:
    found = [c["add"]["rule"] for c in commands if "rule" in c.get("add", {})]
    return [json.dumps(rule["expr"]) for rule in found if rule["chain"] == chain]


@pytest.mark.parametrize(
    ("commands", "family", "table"),
    [
        (filter_rules(guarded("10.0.2.2")), "netdev", "launcher_t0"),
        (translation_rules(translation()), "inet", "launcher"),
        (pool_rules(SharePool(owner="u", network="n", pools=("100.64.0.0/16",))), "inet", "launcher"),
        (removal("inet", "launcher"), "inet", "launcher"),
    ],
)
def test_a_ruleset_replaces_one_table_of_ours_and_nothing_else(
    commands: list[Command], family: str, table: str
) -> None:
    whole = {"table": {"family": family, "name": table}}
    assert commands[:2] == [{"add": whole}, {"delete": whole}]
    assert "flush" not in json.dumps(commands)
    for command in commands[2:]:
        ((verb, thing),) = command.items()
        ((kind, body),) = thing.items()
        assert verb == "add"
        assert body["family"] == family
        assert body["name" if kind == "table" else "table"] == table


def test_everything_is_forwarded_when_no_port_is_named() -> None:
    forwarded = rules(translation_rules(translation()), "prerouting")
    assert len(forwarded) == 2
    assert all("dport" not in rule and "dnat" in rule for rule in forwarded)


def test_only_named_ports_are_forwarded() -> None:
    ports = (
        ForwardedPorts(protocol="tcp", start=22, end=22),
        ForwardedPorts(protocol="tcp", start=8000, end=8010),
        ForwardedPorts(protocol="udp", start=53, end=53),
    )
    forwarded = rules(translation_rules(translation(*ports)), "prerouting")
    assert len(forwarded) == 4
    assert all("dport" in rule for rule in forwarded)
    assert '{"set": [22, {"range": [8000, 8010]}]}' in forwarded[0]


@given(
    st.lists(
        st.tuples(st.integers(1, 65535), st.integers(0, 300)).map(
            lambda p: ForwardedPorts(protocol="tcp", start=p[0], end=min(65535, p[0] + p[1]))
        ),
        min_size=1,
    )
)
def test_merged_ports_are_the_same_ports_and_never_meet(ports: list[ForwardedPorts]) -> None:
    commands = translation_rules(translation(*ports))
    rule = next(
        c["add"]["rule"] for c in commands if c.get("add", {}).get("rule", {}).get("chain") == "prerouting"
    )
    wanted = rule["expr"][2]["match"]["right"]["set"]
    intervals = [(p, p) if isinstance(p, int) else tuple(p["range"]) for p in wanted]
    assert {n for low, high in intervals for n in range(low, high + 1)} == {
        n for p in ports for n in range(p.start, p.end + 1)
    }
    assert all(b[0] > a[1] + 1 for a, b in pairwise(intervals))


def test_the_namespace_passes_on_nothing_that_nobody_asked_for() -> None:
    commands = translation_rules(translation())
    chain = next(
        c["add"]["chain"] for c in commands if c.get("add", {}).get("chain", {}).get("name") == "forward"
    )
    assert chain["policy"] == "drop"


def test_without_a_wire_a_tap_stays_on_its_bridge() -> None:
    commands = filter_rules(guarded(wire=None))
    assert "fwd" not in json.dumps(commands)
    assert rules(commands, "from_guest")[-1] == '[{"accept": null}]'
    assert rules(commands, "to_guest") == []


def test_an_unguarded_wire_lets_everything_through() -> None:
    step = FilterTap(owner="u", network="n", tap="t0", mac=MAC, guard=False, wire="w0")
    assert rules(filter_rules(step), "from_guest") == ['[{"fwd": {"dev": "w0"}}]']


def test_ipv6_is_dropped_where_the_guest_has_none() -> None:
    found = rules(filter_rules(guarded("10.0.2.2")), "from_guest")
    assert any('{"set": ["arp", "ip"]}' in rule and "drop" in rule for rule in found)
