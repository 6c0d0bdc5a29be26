# SPDX-License-Identifier: Apache-2.0
"""``devices.inputs`` and the inputs that an architecture's display needs -> InputPlan. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.plan.context import PlanContext
from launcher.plan.devices.graphics import has_graphics
from launcher.plan.devices.model import InputPlan


def plan_inputs(context: PlanContext) -> tuple[InputPlan, ...]:
    """Plan the inputs asked for, then those without which a display could not be used (x86 has PS/2)."""
    return tuple(_inputs(context))


def _inputs(context: PlanContext) -> Iterator[InputPlan]:
    asked = context.devices.inputs
    for device in asked:
        bus = device.bus or "usb"
        yield InputPlan(
            name=device.name,
            type=device.type or "tablet",
            bus=bus,
            model="virtio" if bus == "virtio" else None,
        )
    if not has_graphics(context):
        return
    if context.arch.name == "arm64":
        if not any(device.type == "tablet" for device in asked):
            yield InputPlan(type="tablet", bus="usb")
        if not any(device.type == "keyboard" for device in asked):
            yield InputPlan(type="keyboard", bus="usb")
    elif context.arch.name == "s390x" and not any(device.type == "keyboard" for device in asked):
        yield InputPlan(type="keyboard", bus="virtio")
