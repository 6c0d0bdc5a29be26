# SPDX-License-Identifier: Apache-2.0
"""Rules of ``spec.domain.clock``: one offset, and timers with policies that libvirt knows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from launcher.errors import Violation
from launcher.spec.rules.checks import one_of
from launcher.spec.rules.context import DOMAIN, Context, Rule
from launcher.spec.rules.finding import invalid

CLOCK: Final = f"{DOMAIN}.clock"
RTC_POLICIES: Final = ("delay", "catchup")
RTC_TRACKS: Final = ("guest", "wall")
PIT_POLICIES: Final = ("delay", "catchup", "discard")
HPET_POLICIES: Final = ("delay", "catchup", "merge", "discard")

# The characters that libvirt's schema allows in the name of a time zone.
_TIMEZONE: Final = re.compile(r"[A-Za-z0-9_.+/-]{1,64}")


def offset(ctx: Context) -> Iterator[Violation]:
    """The clock is UTC or that of a time zone, not both."""
    clock = ctx.domain.clock
    if clock is None or not clock.timezone:
        return
    if clock.utc is not None:
        yield invalid(f"{CLOCK}.timezone", clock.timezone, "utc and timezone exclude each other")
    if _TIMEZONE.fullmatch(clock.timezone) is None:
        yield invalid(f"{CLOCK}.timezone", clock.timezone, "not the name of a time zone such as Europe/Paris")


def timers(ctx: Context) -> Iterator[Violation]:
    """Tick policies and tracks are those a timer has."""
    timer = ctx.domain.clock.timer if ctx.domain.clock is not None else None
    if timer is None:
        return
    path = f"{CLOCK}.timer"
    if timer.rtc is not None:
        yield from one_of(f"{path}.rtc.tickPolicy", timer.rtc.tick_policy, RTC_POLICIES)
        yield from one_of(f"{path}.rtc.track", timer.rtc.track, RTC_TRACKS)
    if timer.pit is not None:
        yield from one_of(f"{path}.pit.tickPolicy", timer.pit.tick_policy, PIT_POLICIES)
    if timer.hpet is not None:
        yield from one_of(f"{path}.hpet.tickPolicy", timer.hpet.tick_policy, HPET_POLICIES)


RULES: tuple[Rule, ...] = (offset, timers)
