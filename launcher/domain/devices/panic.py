# SPDX-License-Identifier: Apache-2.0
"""``<panic>``. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.domain.element import E, Element
from launcher.plan.model import VMPlan


def panics(plan: VMPlan) -> Iterator[Element]:
    """Devices that report a crash of the guest."""
    for device in plan.devices.panics:
        yield E("panic", model=device.model)
