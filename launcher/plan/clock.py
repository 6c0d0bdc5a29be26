# SPDX-License-Identifier: Apache-2.0
"""The guest clock and its timers. Pure."""

from __future__ import annotations

from launcher.plan.context import PlanContext
from launcher.plan.model import ClockPlan
from launcher.plan.model import Timer as TimerPlan
from launcher.spec.model import Clock, Timer


def clock(context: PlanContext) -> ClockPlan | None:
    """The clock; None leaves it to QEMU (UTC). utc wins over a time zone; timers alone imply UTC."""
    asked = context.domain.clock or Clock()
    timers = (*_timers(asked.timer or Timer()), *_tsc(context))
    if asked.utc is not None:
        offset = asked.utc.offset_seconds
        return ClockPlan(offset="utc", adjustment="reset" if offset is None else str(offset), timers=timers)
    if asked.timezone:
        return ClockPlan(offset="timezone", timezone=asked.timezone, timers=timers)
    return ClockPlan(offset="utc", timers=timers) if timers else None


def _timers(asked: Timer) -> tuple[TimerPlan, ...]:
    timers = (
        None
        if asked.rtc is None
        else TimerPlan(
            name="rtc",
            present=asked.rtc.present is not False,
            tickpolicy=asked.rtc.tick_policy or None,
            track=asked.rtc.track or None,
        ),
        None
        if asked.pit is None
        else TimerPlan(
            name="pit", present=asked.pit.present is not False, tickpolicy=asked.pit.tick_policy or None
        ),
        None if asked.kvm is None else TimerPlan(name="kvmclock", present=asked.kvm.present is not False),
        None
        if asked.hpet is None
        else TimerPlan(
            name="hpet", present=asked.hpet.present is not False, tickpolicy=asked.hpet.tick_policy or None
        ),
        None
        if asked.hyperv is None
        else TimerPlan(name="hypervclock", present=asked.hyperv.present is not False),
    )
    return tuple(timer for timer in timers if timer is not None)


def _tsc(context: PlanContext) -> tuple[TimerPlan, ...]:
    """The frequency that a migratable TSC must keep. TCG's TSC has none to set."""
    status = context.vmi.status
    if status is None or status.topology_hints is None or context.emulated or context.arch.name != "amd64":
        return ()
    frequency = status.topology_hints.tsc_frequency
    return (TimerPlan(name="tsc", frequency=frequency),) if frequency else ()
