# SPDX-License-Identifier: Apache-2.0
"""``devices.video`` or the architecture's default -> VideoPlan. Pure."""

from __future__ import annotations

from launcher.plan.context import PlanContext
from launcher.plan.devices.graphics import has_graphics, is_foreign
from launcher.plan.devices.model import VideoPlan

_VRAM_KIB = 16384


def plan_video(context: PlanContext) -> VideoPlan | None:
    """Plan the display adapter of a guest that has a display."""
    if not has_graphics(context) or is_foreign(context):
        return None
    asked = context.devices.video.type if context.devices.video is not None else None
    if asked:
        return VideoPlan(type=asked, vram_kib=_VRAM_KIB)
    if context.arch.name != "amd64":
        return VideoPlan(type="virtio")
    # UEFI has a driver for bochs, and bochs none of VGA's legacy.
    return VideoPlan(type="bochs") if context.efi else VideoPlan(type="vga", vram_kib=_VRAM_KIB)
