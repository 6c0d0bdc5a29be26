# SPDX-License-Identifier: Apache-2.0
"""``autoattachGraphicsDevice`` -> GraphicsPlan. Pure."""

from __future__ import annotations

from launcher.plan.context import PlanContext
from launcher.plan.devices.model import GraphicsPlan


def has_graphics(context: PlanContext) -> bool:
    """Whether the manifest wants a display, which is so unless it is turned off."""
    return context.devices.autoattach_graphics_device is not False


def is_foreign(context: PlanContext) -> bool:
    """Whether the guest's architecture is not the host's; such guests get no display."""
    return context.arch.name != context.facts.arch


def plan_graphics(context: PlanContext) -> GraphicsPlan | None:
    """Plan VNC on the instance's own socket."""
    if not has_graphics(context) or is_foreign(context):
        return None
    return GraphicsPlan(socket=context.paths.vnc_socket)
