# SPDX-License-Identifier: Apache-2.0
"""``autoattachMemBalloon`` -> BalloonPlan. Pure."""

from __future__ import annotations

from launcher.plan.context import PlanContext
from launcher.plan.devices.model import BalloonPlan

REPORTING_DISABLED = "kubevirt.io/free-page-reporting-disabled"


def plan_balloon(context: PlanContext) -> BalloonPlan:
    """Plan the balloon; one that is turned off is planned as such, for libvirt adds a missing one."""
    if context.devices.autoattach_mem_balloon is False:
        return BalloonPlan(model="none")
    # A guest that got its memory for itself must not have it taken and given back under load.
    reporting = (
        context.settings.free_page_reporting
        and not context.high_performance
        and context.annotations.get(REPORTING_DISABLED) != "true"
    )
    return BalloonPlan(
        model=context.virtio_model,
        free_page_reporting=reporting,
        stats_period_s=context.settings.balloon_stats_period_s or None,
        iommu=context.iommu,
    )
