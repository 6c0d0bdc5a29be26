# SPDX-License-Identifier: Apache-2.0
"""``<tpm>``: swtpm, which libvirt starts. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.domain.element import E, Element
from launcher.plan.model import VMPlan


def tpm(plan: VMPlan) -> Iterator[Element]:
    """The emulated TPM 2.0, if there is one."""
    device = plan.devices.tpm
    if device is not None:
        persistent = "yes" if device.persistent else None
        yield E(
            "tpm",
            E("backend", type="emulator", version="2.0", persistent_state=persistent),
            model=device.model,
        )
