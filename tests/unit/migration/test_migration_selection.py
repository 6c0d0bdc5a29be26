# SPDX-License-Identifier: Apache-2.0
"""Which policy an instance gets."""

from __future__ import annotations

import pytest

from launcher.migration.selection import policy_name, select
from launcher.spec.model import MigrationPolicy, MigrationPolicySpec, ObjectMeta, Selectors

NS = {"kubernetes.io/metadata.name": "shop", "tier": "gold"}
VM = {"app": "db", "os": "linux"}


def policy(
    name: str, vmi: dict[str, str] | None = None, namespace: dict[str, str] | None = None
) -> MigrationPolicy:
    selectors = Selectors(virtual_machine_instance_selector=vmi or {}, namespace_selector=namespace or {})
    return MigrationPolicy(metadata=ObjectMeta(name=name), spec=MigrationPolicySpec(selectors=selectors))


@pytest.mark.parametrize(
    ("policies", "wins"),
    [
        ([], ""),
        ([policy("a", {"app": "web"})], ""),
        ([policy("a", {"app": "db", "absent": "x"})], ""),
        ([policy("a", {"app": "db"}), policy("b", VM)], "b"),
        ([policy("a", {"app": "db"}), policy("b", {"app": "db"}, {"tier": "gold"})], "b"),
        ([policy("a", {}, {"tier": "gold"}), policy("b", {"app": "db"})], "b"),
        ([policy("b", {"app": "db"}), policy("a", {"os": "linux"})], "a"),
        ([policy("a"), policy("z", {"app": "db"})], "z"),
        ([policy("everything")], "everything"),
        ([policy("a", {}, {"tier": "silver"})], ""),
    ],
)
def test_the_most_specific_policy_wins_then_the_first_by_name(
    policies: list[MigrationPolicy], wins: str
) -> None:
    for order in (policies, policies[::-1]):
        found = select(order, labels=VM, namespace=NS)
        assert (policy_name(found) if found is not None else "") == wins


def test_an_instance_without_labels_is_not_selected_by_labels() -> None:
    assert select([policy("a", {"app": "db"})], labels={}, namespace={}) is None
