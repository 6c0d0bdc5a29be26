# SPDX-License-Identifier: Apache-2.0
"""``devices.watchdog`` -> WatchdogPlan. Pure."""

from __future__ import annotations

from launcher.errors import HostUnsupported
from launcher.plan.context import PlanContext
from launcher.plan.devices.model import WatchdogPlan

_MODELS = {"amd64": "i6300esb", "s390x": "diag288"}


def plan_watchdog(context: PlanContext) -> WatchdogPlan | None:
    """Plan the watchdog; it resets the guest unless another action is asked for.

    Raises:
        HostUnsupported: the architecture has none.
    """
    asked = context.devices.watchdog
    if asked is None:
        return None
    model = _MODELS.get(context.arch.name)
    if model is None:
        raise HostUnsupported(f"a watchdog for {context.arch.name} guests", "QEMU's boards have none")
    device = asked.diag288 if model == "diag288" else asked.i6300esb
    return WatchdogPlan(name=asked.name, model=model, action=(device.action if device else None) or "reset")
