# SPDX-License-Identifier: Apache-2.0
"""The guest clock and its timers."""

from __future__ import annotations

from launcher.spec.model.base import Model
from launcher.spec.model.scalars import Int32


class ClockOffsetUTC(Model, frozen=True, kw_only=True):
    """API type ``ClockOffsetUTC``.

    A clock in UTC.

    offset_seconds: seconds added to UTC, which may be negative
    """

    offset_seconds: Int32 | None = None


class HPETTimer(Model, frozen=True, kw_only=True):
    """API type ``HPETTimer``.

    The high precision event timer.

    present: whether it is there; on when the timer is named
    tick_policy: what happens to ticks that the guest missed
    """

    present: bool | None = None
    tick_policy: str | None = None


class HypervTimer(Model, frozen=True, kw_only=True):
    """API type ``HypervTimer``.

    Hyper-V's reference time page.

    present: whether it is there; on when the timer is named
    """

    present: bool | None = None


class KVMTimer(Model, frozen=True, kw_only=True):
    """API type ``KVMTimer``.

    KVM's paravirtual clock.

    present: whether it is there; on when the timer is named
    """

    present: bool | None = None


class PITTimer(Model, frozen=True, kw_only=True):
    """API type ``PITTimer``.

    The programmable interval timer.

    present: whether it is there; on when the timer is named
    tick_policy: what happens to ticks that the guest missed
    """

    present: bool | None = None
    tick_policy: str | None = None


class RTCTimer(Model, frozen=True, kw_only=True):
    """API type ``RTCTimer``.

    The real-time clock as a timer.

    present: whether it is there; on when the timer is named
    tick_policy: what happens to ticks that the guest missed
    track: the host's clock that it follows
    """

    present: bool | None = None
    tick_policy: str | None = None
    track: str | None = None


class Timer(Model, frozen=True, kw_only=True):
    """API type ``Timer``.

    Timers that the guest is offered.

    hpet: the high precision event timer
    hyperv: Hyper-V's reference time page
    kvm: KVM's paravirtual clock
    pit: the programmable interval timer
    rtc: the real-time clock as a timer
    """

    hpet: HPETTimer | None = None
    hyperv: HypervTimer | None = None
    kvm: KVMTimer | None = None
    pit: PITTimer | None = None
    rtc: RTCTimer | None = None


class Clock(Model, frozen=True, kw_only=True):
    """API type ``Clock``.

    At most one of a timezone and UTC.

    timer: timers that the guest is offered
    timezone: the clock runs in the local time of this zone
    utc: the clock runs in UTC
    """

    timer: Timer | None = None
    timezone: str | None = None
    utc: ClockOffsetUTC | None = None
