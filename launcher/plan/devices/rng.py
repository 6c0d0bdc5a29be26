# SPDX-License-Identifier: Apache-2.0
"""``devices.rng`` -> RngPlan. Pure."""

from __future__ import annotations

from launcher.plan.context import PlanContext
from launcher.plan.devices.model import RngPlan


def plan_rng(context: PlanContext) -> RngPlan | None:
    """Plan the source of randomness, if one is asked for."""
    if context.devices.rng is None:
        return None
    return RngPlan(model=context.virtio_model, iommu=context.iommu)
