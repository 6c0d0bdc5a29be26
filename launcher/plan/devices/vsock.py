# SPDX-License-Identifier: Apache-2.0
"""``autoattachVSOCK`` -> VsockPlan. Pure; the CID was allocated before."""

from __future__ import annotations

from launcher.plan.context import PlanContext
from launcher.plan.devices.model import VsockPlan


def plan_vsock(context: PlanContext) -> VsockPlan | None:
    """Plan the vsock device with the allocated CID, else the one that the status reports."""
    if not context.devices.autoattach_vsock:
        return None
    status = context.vmi.status
    reported = status.vsock_cid if status is not None else None
    # No transitional vsock: the device came with virtio 1.0 already.
    return VsockPlan(model=context.arch.virtio, cid=context.allocations.vsock_cid or reported or None)
