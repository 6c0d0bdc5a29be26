# SPDX-License-Identifier: Apache-2.0
"""``<metadata>``: our own element, by which a domain is known to be ours and whose it is. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.domain.element import E, Element
from launcher.plan.model import VMPlan

NAMESPACE = "https://launcher.dev/vmi/1.0"
PREFIX = "launcher"


def metadata(plan: VMPlan) -> Iterator[Element]:
    """uid, namespace and name of the instance."""
    yield E("metadata", instance(plan.identity.uid, plan.identity.namespace, plan.identity.name))


def instance(uid: str, namespace: str, name: str) -> Element:
    """The element that libvirt keeps for us; it stands alone in calls that replace it."""
    return E(
        f"{PREFIX}:vmi",
        E(f"{PREFIX}:uid", uid),
        E(f"{PREFIX}:namespace", namespace),
        E(f"{PREFIX}:name", name),
        **{f"xmlns:{PREFIX}": NAMESPACE},
    )
