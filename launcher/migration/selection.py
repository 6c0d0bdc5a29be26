# SPDX-License-Identifier: Apache-2.0
"""Which MigrationPolicy an instance gets. Pure: labels in, at most one policy out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from launcher.spec.model import MigrationPolicy

NAMESPACE_LABEL = "kubernetes.io/metadata.name"
"""The label that every namespace of Kubernetes has: its name."""


def select(
    policies: Sequence[MigrationPolicy], *, labels: Mapping[str, str], namespace: Mapping[str, str]
) -> MigrationPolicy | None:
    """The policy whose selectors match ``labels`` (of the instance) and ``namespace`` (its labels).

    All labels of both selectors must be there. Of several the one with most labels wins, then the one
    with more labels of the instance, then the first by name. Selectors without labels match everything,
    and everything else is before them.
    """
    matching = [policy for policy in policies if _matches(policy, labels, namespace)]
    return min(matching, key=_rank, default=None)


def _matches(policy: MigrationPolicy, labels: Mapping[str, str], namespace: Mapping[str, str]) -> bool:
    selectors = policy.spec.selectors
    of_instance = selectors.virtual_machine_instance_selector.items() <= labels.items()
    return of_instance and selectors.namespace_selector.items() <= namespace.items()


def _rank(policy: MigrationPolicy) -> tuple[int, int, str]:
    selectors = policy.spec.selectors
    own = len(selectors.virtual_machine_instance_selector)
    return (-own - len(selectors.namespace_selector), -own, policy_name(policy))


def policy_name(policy: MigrationPolicy) -> str:
    """Its name; empty for one without."""
    return (policy.metadata.name or "") if policy.metadata is not None else ""
