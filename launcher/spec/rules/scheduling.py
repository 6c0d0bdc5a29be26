# SPDX-License-Identifier: Apache-2.0
"""Rules of what only a scheduler acts upon: tolerations, affinity, spread. Ranges and required parts only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from launcher.errors import Violation
from launcher.spec.rules.checks import in_range, is_qualified_name
from launcher.spec.rules.context import Context, Rule
from launcher.spec.rules.finding import invalid, required

AFFINITY: Final = "spec.affinity"
LARGEST_WEIGHT: Final = 100

_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"


def tolerations(ctx: Context) -> Iterator[Violation]:
    """A toleration that matches by existence has no value, and one for all keys matches by existence."""
    for index, toleration in enumerate(ctx.spec.tolerations):
        path = f"spec.tolerations[{index}]"
        if toleration.key and not is_qualified_name(toleration.key):
            yield invalid(f"{path}.key", toleration.key, "not a taint's key; accepted is [prefix/]name")
        if not toleration.key and toleration.operator != "Exists":
            yield invalid(f"{path}.operator", toleration.operator, "a toleration without a key needs Exists")
        if toleration.operator == "Exists" and toleration.value:
            yield invalid(f"{path}.value", toleration.value, "goes with the operator Equal only")
        if toleration.toleration_seconds is not None and toleration.effect != "NoExecute":
            yield invalid(f"{path}.effect", toleration.effect, "tolerationSeconds needs the effect NoExecute")


def weights(ctx: Context) -> Iterator[Violation]:
    """A preference weighs 1 to 100."""
    affinity = ctx.spec.affinity
    if affinity is None:
        return
    found: list[tuple[str, list[int]]] = []
    if affinity.node_affinity is not None:
        nodes = affinity.node_affinity.preferred_during_scheduling_ignored_during_execution
        found.append(("nodeAffinity", [term.weight for term in nodes]))
    for name, group in (
        ("podAffinity", affinity.pod_affinity),
        ("podAntiAffinity", affinity.pod_anti_affinity),
    ):
        if group is not None:
            pods = group.preferred_during_scheduling_ignored_during_execution
            found.append((name, [term.weight for term in pods]))
    for name, given in found:
        for index, weight in enumerate(given):
            yield from in_range(f"{AFFINITY}.{name}.{_PREFERRED}[{index}].weight", weight, 1, LARGEST_WEIGHT)


def spread(ctx: Context) -> Iterator[Violation]:
    """A spread allows a skew of at least one over a named topology."""
    for index, constraint in enumerate(ctx.spec.topology_spread_constraints):
        path = f"spec.topologySpreadConstraints[{index}]"
        yield from in_range(f"{path}.maxSkew", constraint.max_skew, 1)
        yield from in_range(f"{path}.minDomains", constraint.min_domains, 1)
        if not constraint.topology_key:
            yield required(f"{path}.topologyKey", "needs the key of a node label")


RULES: tuple[Rule, ...] = (tolerations, weights, spread)
