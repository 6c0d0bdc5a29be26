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
        yield _slots(vcpus.current, vcpus.fixed, vcpus.maximum)


# Hundreds in a large domain, and the same in all domains of a size.
@lru_cache(maxsize=64)
def _slots(current: int, fixed: int, maximum: int) -> Element:
    return E("vcpus", *(_slot(number, current, fixed) for number in range(maximum)))


def _slot(number: int, current: int, fixed: int) -> Element:
    return E("vcpu", id=number, enabled=yes_no(number < current), hotpluggable=yes_no(number >= fixed))
