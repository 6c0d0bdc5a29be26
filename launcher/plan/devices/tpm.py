# SPDX-License-Identifier: Apache-2.0
"""``devices.tpm`` -> TpmPlan. Pure."""

from __future__ import annotations

from launcher.plan.context import PlanContext
from launcher.plan.devices.model import TpmPlan


def plan_tpm(context: PlanContext) -> TpmPlan | None:
    """Plan the emulated TPM: a CRB device if its state is to last, else TIS."""
    asked = context.devices.tpm
    if asked is None or asked.enabled is False:
        return None
    persistent = bool(asked.persistent)
    return TpmPlan(model="tpm-crb" if persistent else "tpm-tis", persistent=persistent)
