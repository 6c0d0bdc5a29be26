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
    guard_rules,
    node_port_rules,
    pool_rules,
    translation_rules,
)
from launcher.plan.steps import (
    ForwardedPorts,
    ForwardNodePorts,
    GuardLink,
    NodePort,
    SharePool,
    TranslateAddresses,
)

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


def guarded(*addresses: str, namespace: str | None = None) -> GuardLink:
    return GuardLink(owner="u", network="n", link="t0", mac=MAC, addresses=addresses, namespace=namespace)


def rules(commands: list[Command], chain: str) -> list[str]:
    found = [c["add"]["rule"] for c in commands if "rule" in c.get("add", {})]
    return [json.dumps(rule["expr"]) for rule in found if rule["chain"] == chain]


@pytest.mark.parametrize(
    ("commands", "family", "table"),
    [
        (guard_rules(guarded("10.0.2.2")), "netdev", "launcher_u"),
        (guard_rules(guarded("10.0.2.2", namespace="/ns")), "netdev", "launcher"),
        (translation_rules(translation()), "inet", "launcher"),
        (pool_rules(SharePool(owner="u", network="n", pools=("100.64.0.0/16",))), "inet", "launcher"),
    ],
)
def test_a_ruleset_names_one_table_of_ours_and_nothing_else(
    commands: list[Command], family: str, table: str
) -> None:
    assert commands[0] == {"add": {"table": {"family": family, "name": table}}}
    for command in commands[1:]:
        ((_, thing),) = command.items()
        ((kind, body),) = thing.items()
        assert kind in ("table", "chain", "rule")
        assert body["family"] == family
        assert body["name" if kind == "table" else "table"] == table


def test_chains_of_one_table_are_replaced_one_by_one() -> None:
    commands = guard_rules(guarded())
    assert not any("table" in command.get("delete", {}) for command in commands)
    assert {c["flush"]["chain"]["name"] for c in commands if "flush" in c} == {"t0"}


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


def test_ipv6_is_dropped_where_the_guest_has_none() -> None:
    found = rules(guard_rules(guarded("10.0.2.2")), "t0")
    assert any('{"set": ["arp", "ip"]}' in rule and "drop" in rule for rule in found)


def test_ports_of_the_node_are_chains_of_the_instances_own() -> None:
    step = ForwardNodePorts(
        owner="u",
        network="n",
        outer=("100.64.0.9", "fd64::9"),
        ports=(
            NodePort(protocol="tcp", node=30022, guest=22),
            NodePort(protocol="udp", node=30053, guest=53),
        ),
    )
    parts = node_port_rules(step)
    assert set(parts) == {"prerouting", "output"}
    for part, commands in parts.items():
        assert "launcher_u" in json.dumps(commands[0])
        found = [command["add"]["rule"]["expr"] for command in commands if "rule" in command.get("add", {})]
        ends = [rule[-1]["dnat"] for rule in found]
        assert len(ends) == 4, "two ports, two families"
        assert ends[0] == {"family": "ip", "addr": "100.64.0.9", "port": 22}
        assert ends[-1] == {"family": "ip6", "addr": "fd64::9", "port": 53}
        local = {"fib": {"result": "type", "flags": ["daddr"]}}
        assert all(any(one.get("match", {}).get("left") == local for one in rule) for rule in found)
        beside = [rule for rule in found if any(one.get("match", {}).get("op") == "!=" for one in rule)]
        assert len(beside) == (4 if part == "output" else 0), "the loopback stays the node's own"
