# SPDX-License-Identifier: Apache-2.0
"""``<video>``. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from launcher.domain.element import E, Element
from launcher.plan.devices.model import VideoPlan
from launcher.plan.model import VMPlan


def video(plan: VMPlan) -> Iterator[Element]:
    """The display adapter, if the guest has a display."""
    if plan.devices.video is not None:
        yield _video(plan.devices.video)


# The same few in all domains.
@lru_cache(maxsize=64)
def _video(device: VideoPlan) -> Element:
    return E("video", E("model", type=device.type, vram=device.vram_kib, heads=device.heads))
