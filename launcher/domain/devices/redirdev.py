# SPDX-License-Identifier: Apache-2.0
"""``<redirdev>``. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.domain.element import E, Element
from launcher.plan.model import VMPlan


def redirdevs(plan: VMPlan) -> Iterator[Element]:
    """Slots for USB devices of remote clients."""
    for device in plan.devices.redirdevs:
        yield E("redirdev", E("source", mode="bind", path=device.socket), bus="usb", type="unix")
