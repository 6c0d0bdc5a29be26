# SPDX-License-Identifier: Apache-2.0
"""``<sound>``. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.domain.devices.address import alias
from launcher.domain.element import E, Element
from launcher.plan.model import VMPlan


def sound(plan: VMPlan) -> Iterator[Element]:
    """The sound card, if there is one."""
    device = plan.devices.sound
    if device is not None:
        yield E("sound", alias(device.name), model=device.model)
