# SPDX-License-Identifier: Apache-2.0
"""``devices.sound`` -> SoundPlan. Pure."""

from __future__ import annotations

from launcher.plan.context import PlanContext
from launcher.plan.devices.model import SoundPlan


def plan_sound(context: PlanContext) -> SoundPlan | None:
    """Plan the sound card, an ich9 unless another is asked for."""
    asked = context.devices.sound
    return SoundPlan(name=asked.name, model=asked.model or "ich9") if asked is not None else None
