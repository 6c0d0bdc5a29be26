# SPDX-License-Identifier: Apache-2.0
"""``<name>`` and ``<uuid>``. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.domain.element import E, Element
from launcher.plan.model import VMPlan


def identity(plan: VMPlan) -> Iterator[Element]:
    """Name and UUID of the domain."""
    yield E("name", plan.identity.domain_name)
    yield E("uuid", plan.identity.uuid)
