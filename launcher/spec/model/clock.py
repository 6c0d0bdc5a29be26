# SPDX-License-Identifier: Apache-2.0
"""The guest clock and its timers."""

from __future__ import annotations

from launcher.spec.model.base import Model
from launcher.spec.model.scalars import Int32


class ClockOffsetUTC(Model, frozen=True, kw_only=True):
    """API type ``ClockOffsetUTC``.

    ``offset_seconds`` is added to UTC and may be negative.
    """

    offset_seconds: Int32 | None = None


class HPETTimer(Model, frozen=True, kw_only=True):
    """API type ``HPETTimer``."""

    present: bool | None = None
    tick_policy: str | None = None


class HypervTimer(Model, frozen=True, kw_only=True):
    """API type ``HypervTimer``."""

    present: bool | None = None


class KVMTimer(Model, frozen=True, kw_only=True):
    """API type ``KVMTimer``."""

    present: bool | None = None


class PITTimer(Model, frozen=True, kw_only=True):
    """API type ``PITTimer``."""

    present: bool | None = None
    tick_policy: str | None = None


class RTCTimer(Model, frozen=True, kw_only=True):
    """API type ``RTCTimer``."""

    present: bool | None = None
    tick_policy: str | None = None
    track: str | None = None


class Timer(Model, frozen=True, kw_only=True):
    """API type ``Timer``."""

    hpet: HPETTimer | None = None
    hyperv: HypervTimer | None = None
    kvm: KVMTimer | None = None
    pit: PITTimer | None = None
    rtc: RTCTimer | None = None


class Clock(Model, frozen=True, kw_only=True):
    """API type ``Clock``."""

    timer: Timer | None = None
    timezone: str | None = None
    utc: ClockOffsetUTC | None = None
