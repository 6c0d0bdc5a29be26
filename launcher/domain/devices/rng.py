# SPDX-License-Identifier: Apache-2.0
"""``<rng>``. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.domain.devices.address import iommu, pci
from launcher.domain.element import E, Element
from launcher.plan.model import VMPlan


def rng(plan: VMPlan) -> Iterator[Element]:
    """The source of randomness, if there is one."""
    device = plan.devices.rng
    if device is not None:
        yield E(
            "rng",
            E("backend", "/dev/urandom", model="random"),
            iommu(on=device.iommu),
            pci(device.address),
            model=device.model,
        )
