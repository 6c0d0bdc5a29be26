# SPDX-License-Identifier: Apache-2.0
"""``<controller>``. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from launcher.domain.devices.address import pci
from launcher.domain.element import E, Element
from launcher.plan.devices.model import ControllerPlan
from launcher.plan.model import VMPlan


def controllers(plan: VMPlan) -> Iterator[Element]:
    """Buses, then PCI ports."""
    return map(_controller, plan.devices.controllers)


# Most are root ports, which are the same few in all domains.
@lru_cache(maxsize=4096)
def _controller(controller: ControllerPlan) -> Element:
    return E(
        "controller",
        _driver(controller),
        None if controller.hotplug else E("target", hotplug="off"),
        _hole(controller.pcihole64_kib),
        pci(controller.address),
        type=controller.type,
        index=controller.index,
        model=controller.model,
    )


def _driver(controller: ControllerPlan) -> Element | None:
    if not controller.iommu and controller.iothread is None and controller.queues is None:
        return None
    return E(
        "driver",
        queues=controller.queues,
        iothread=controller.iothread,
        iommu="on" if controller.iommu else None,
    )


def _hole(size_kib: int | None) -> Element | None:
    return E("pcihole64", size_kib, unit="KiB") if size_kib is not None else None
