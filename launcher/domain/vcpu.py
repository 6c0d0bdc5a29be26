# SPDX-License-Identifier: Apache-2.0
"""``<vcpu>`` and ``<vcpus>``. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.domain.element import E, Element, yes_no
from launcher.plan.model import VMPlan


def vcpu(plan: VMPlan) -> Iterator[Element]:
    """The most vCPUs there may be, and, when they can be plugged, which are there now."""
    vcpus = plan.vcpus
    yield E("vcpu", vcpus.maximum, placement="static")
    if vcpus.hotplug:
        yield E(
            "vcpus",
            *(
                E(
                    "vcpu",
                    id=number,
                    enabled=yes_no(number < vcpus.current),
                    hotpluggable=yes_no(number >= vcpus.fixed),
                )
                for number in range(vcpus.maximum)
            ),
        )
