# SPDX-License-Identifier: Apache-2.0
"""``<input>``. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.domain.devices.address import alias, pci
from launcher.domain.element import E, Element
from launcher.plan.model import VMPlan


def inputs(plan: VMPlan) -> Iterator[Element]:
    """Tablets and keyboards."""
    for device in plan.devices.inputs:
        yield E(
            "input",
            alias(device.name),
            pci(device.address),
            type=device.type,
            bus=device.bus,
            model=device.model,
        )
