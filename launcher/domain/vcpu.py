# SPDX-License-Identifier: Apache-2.0
"""``<vcpu>`` and ``<vcpus>``. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from launcher.domain.element import E, Element, cpu_list, yes_no
from launcher.plan.model import VMPlan


def vcpu(plan: VMPlan) -> Iterator[Element]:
    """The most vCPUs there may be, and, when they can be plugged, which are there now."""
    vcpus = plan.vcpus
    yield E("vcpu", vcpus.maximum, placement="static", cpuset=cpu_list(vcpus.cpuset) or None)
    if vcpus.hotplug:
        yield E(
            "vcpus",
            *(
                _slot(number, enabled=number < vcpus.current, hotpluggable=number >= vcpus.fixed)
                for number in range(vcpus.maximum)
            ),
        )


# There are hundreds in a large domain, and the same in all domains.
@lru_cache(maxsize=4096)
def _slot(number: int, *, enabled: bool, hotpluggable: bool) -> Element:
    return E("vcpu", id=number, enabled=yes_no(enabled), hotpluggable=yes_no(hotpluggable))
