# SPDX-License-Identifier: Apache-2.0
"""``devices.panicDevices`` -> PanicPlan. Pure."""

from __future__ import annotations

from launcher.errors import HostUnsupported
from launcher.plan.context import PlanContext
from launcher.plan.devices.model import PanicPlan
from launcher.plan.devices.versions import PVPANIC


def plan_panics(context: PlanContext) -> tuple[PanicPlan, ...]:
    """Plan the panic devices.

    Raises:
        HostUnsupported: libvirt is too old for pvpanic.
    """
    models = [device.model or None for device in context.devices.panic_devices]
    if "pvpanic" in models and context.facts.libvirt_version < PVPANIC:
        raise HostUnsupported(
            "panic device pvpanic",
            "libvirt knows it since 9.1",
            hint="use model isa or hyperv, or a newer libvirt",
        )
    return tuple(PanicPlan(model=model) for model in models)
