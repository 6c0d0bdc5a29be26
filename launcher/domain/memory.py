# SPDX-License-Identifier: Apache-2.0
"""``<maxMemory>`` and ``<memory>``. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.domain.element import E, Element
from launcher.plan.model import VMPlan


def memory(plan: VMPlan) -> Iterator[Element]:
    """Room for hotplug, then memory at boot; bytes, so that nothing is rounded here."""
    if plan.memory.maximum is not None:
        yield E("maxMemory", plan.memory.maximum, slots=plan.memory.slots or None, unit="b")
    yield E("memory", plan.memory.size, unit="b")
