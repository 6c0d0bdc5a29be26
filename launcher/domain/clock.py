# SPDX-License-Identifier: Apache-2.0
"""``<clock>`` and its timers. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from launcher.domain.element import E, Element, yes_no
from launcher.plan.model import ClockPlan, Timer, VMPlan


def clock(plan: VMPlan) -> Iterator[Element]:
    """The clock, unless QEMU's own default is meant."""
    if plan.clock is not None:
        yield _clock(plan.clock)


# The same few in all domains.
@lru_cache(maxsize=256)
def _clock(asked: ClockPlan) -> Element:
    return E(
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
