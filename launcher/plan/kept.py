# SPDX-License-Identifier: Apache-2.0
"""Firmware variables and TPM state: which outlive the instance, and where they lie meanwhile. Pure.

As the claim that KubeVirt makes for them, what is kept belongs to the name of the instance, not to its uid.
"""

from __future__ import annotations

from collections.abc import Iterator

from launcher.plan.context import PlanContext
from launcher.plan.devices.model import DevicesPlan
from launcher.plan.model import BootPlan, VMPlan
from launcher.plan.paths import kept_paths
from launcher.plan.steps import UseState


def state_steps(context: PlanContext, boot: BootPlan, devices: DevicesPlan) -> Iterator[UseState]:
    """The state of the instance that is not in its volumes."""
    kept = kept_paths(context.settings.state_dir, context.namespace, context.name)
    owner = context.allocations.uid
    if boot.nvram is not None and _keeps_variables(context):
        yield UseState(owner=owner, path=boot.nvram.path, kept=kept.nvram)
    if devices.tpm is not None:
        path = f"{context.settings.swtpm_dir}/{context.allocations.uuid.lower()}"
        yield UseState(owner=owner, path=path, kept=kept.tpm if devices.tpm.persistent else None)


def keeps_state(plan: VMPlan) -> bool:
    """Whether something of the instance outlives it."""
    return any(isinstance(step, UseState) and step.kept for step in plan.steps)


def _keeps_variables(context: PlanContext) -> bool:
    firmware = context.domain.firmware
    loader = firmware.bootloader if firmware is not None else None
    return loader is not None and loader.efi is not None and bool(loader.efi.persistent)
