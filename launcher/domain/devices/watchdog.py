# SPDX-License-Identifier: Apache-2.0
"""``<watchdog>``. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.domain.devices.address import alias, pci
from launcher.domain.element import E, Element
from launcher.plan.model import VMPlan


def watchdog(plan: VMPlan) -> Iterator[Element]:
    """The watchdog, if there is one."""
    device = plan.devices.watchdog
    if device is not None:
        yield E(
            "watchdog",
            alias(device.name),
            pci(device.address),
            model=device.model,
            action=device.action,
        )
