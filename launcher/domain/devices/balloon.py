# SPDX-License-Identifier: Apache-2.0
"""``<memballoon>``. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from launcher.domain.devices.address import iommu, pci
from launcher.domain.element import E, Element, on_off
from launcher.plan.devices.model import BalloonPlan
from launcher.plan.model import VMPlan


def balloon(plan: VMPlan) -> Iterator[Element]:
    """The memory balloon; model ``none`` is written, for libvirt adds one otherwise."""
    if plan.devices.balloon is not None:
        yield _balloon(plan.devices.balloon)


# The same few in all domains.
@lru_cache(maxsize=256)
def _balloon(device: BalloonPlan) -> Element:
    reporting = device.free_page_reporting
    return E(
        "memballoon",
        E("stats", period=device.stats_period_s) if device.stats_period_s is not None else None,
        iommu(on=device.iommu),
        pci(device.address),
        model=device.model,
        freePageReporting=on_off(reporting) if reporting is not None else None,
    )
