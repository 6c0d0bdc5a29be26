# SPDX-License-Identifier: Apache-2.0
"""``clientPassthrough`` -> RedirdevPlan. Pure."""

from __future__ import annotations

from launcher.plan.context import PlanContext
from launcher.plan.devices.model import RedirdevPlan

# The API promises this many devices at a time (UsbClientPassthroughMaxNumberOf).
SLOTS = 4


def plan_redirdevs(context: PlanContext) -> tuple[RedirdevPlan, ...]:
    """Plan the slots for USB devices of remote clients, if they are asked for."""
    if context.devices.client_passthrough is None:
        return ()
    return tuple(RedirdevPlan(socket=context.paths.usbredir_socket(slot)) for slot in range(SLOTS))
