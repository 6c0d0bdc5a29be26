# SPDX-License-Identifier: Apache-2.0
"""``<clock>`` and its timers. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.domain.element import E, Element, yes_no
from launcher.plan.model import Timer, VMPlan


def clock(plan: VMPlan) -> Iterator[Element]:
    """The clock, unless QEMU's own default is meant."""
    asked = plan.clock
    if asked is not None:
        yield E(
            "clock",
            *map(_timer, asked.timers),
            offset=asked.offset,
            adjustment=asked.adjustment,
            timezone=asked.timezone,
        )


def _timer(timer: Timer) -> Element:
    return E(
        "timer",
        name=timer.name,
        tickpolicy=timer.tickpolicy,
        track=timer.track,
        frequency=timer.frequency,
        present=None if timer.present is None else yes_no(timer.present),
    )
