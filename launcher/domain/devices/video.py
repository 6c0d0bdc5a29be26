# SPDX-License-Identifier: Apache-2.0
"""``<video>``. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.domain.element import E, Element
from launcher.plan.model import VMPlan


def video(plan: VMPlan) -> Iterator[Element]:
    """The display adapter, if the guest has a display."""
    device = plan.devices.video
    if device is not None:
        yield E("video", E("model", type=device.type, vram=device.vram_kib, heads=device.heads))
