# SPDX-License-Identifier: Apache-2.0
"""``<memballoon>``. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.domain.devices.address import iommu, pci
from launcher.domain.element import E, Element, on_off
from launcher.plan.model import VMPlan


def balloon(plan: VMPlan) -> Iterator[Element]:
    """The memory balloon; model ``none`` is written, for libvirt adds one otherwise."""
    device = plan.devices.balloon
    if device is None:
        return
    reporting = device.free_page_reporting
    yield E(
        "memballoon",
        E("stats", period=device.stats_period_s) if device.stats_period_s is not None else None,
        iommu(on=device.iommu),
        pci(device.address),
        model=device.model,
        freePageReporting=on_off(reporting) if reporting is not None else None,
    )
