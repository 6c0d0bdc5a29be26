# SPDX-License-Identifier: Apache-2.0
"""``<on_reboot>``. Pure. What ends a guest otherwise destroys it, which is libvirt's default."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.domain.element import E, Element
from launcher.plan.model import VMPlan


def lifecycle(plan: VMPlan) -> Iterator[Element]:
    """What a reboot of the guest does, when the manifest says so."""
    if plan.lifecycle.on_reboot is not None:
        yield E("on_reboot", plan.lifecycle.on_reboot)
