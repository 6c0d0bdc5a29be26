# SPDX-License-Identifier: Apache-2.0
"""``<iothreads>``. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.domain.element import E, Element
from launcher.plan.model import VMPlan


def iothreads(plan: VMPlan) -> Iterator[Element]:
    """The number of I/O threads, if there are any."""
    if plan.iothreads.count:
        yield E("iothreads", plan.iothreads.count)
