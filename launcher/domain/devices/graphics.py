# SPDX-License-Identifier: Apache-2.0
"""``<graphics>``. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.domain.element import E, Element
from launcher.plan.model import VMPlan


def graphics(plan: VMPlan) -> Iterator[Element]:
    """VNC on a unix socket, if the guest has a display."""
    device = plan.devices.graphics
    if device is not None:
        yield E("graphics", E("listen", type="socket", socket=device.socket), type="vnc")
