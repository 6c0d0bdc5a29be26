# SPDX-License-Identifier: Apache-2.0
"""What both drawings of a migration share: which panels there are, and round numbers for axes. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from launcher.migration.curves import Curves, Point
from launcher.units import human_bytes, human_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One curve; ``color`` is a name that SVG and terminals know."""

    label: str
    color: str
    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """Curves over one scale, from 0 to ``top``; ``shown`` writes a value of it. ``base`` 1024: bytes."""

    title: str
    lines: tuple[Line, ...]
    shown: Callable[[float], str]
    top: float
    base: int


def panels(curves: Curves) -> tuple[Panel, ...]:
    """What is drawn, from top to bottom."""
    return (
        _panel("remaining", (Line(label="remaining", color="blue", points=curves.remaining),), human_bytes),
        _panel(
            "rates",
            (
                Line(label="bandwidth", color="green", points=curves.bandwidth),
                Line(label="dirty rate", color="red", points=curves.dirty_rate),
            ),
            lambda rate: f"{human_bytes(rate)}/s",
        ),
        _panel(
            "downtime limit",
            (Line(label="downtime limit", color="magenta", points=curves.downtime_limit),),
            human_ms,
            base=10,
        ),
    )


def round_top(value: float, base: int = 10) -> float:
    """The next 1, 2 or 5 times a power of ten that is not below ``value``; of bytes, in their unit."""
    if value <= 0:
        return 1.0
    unit = 1.0
    if base == 1024:
        unit = 1024.0 ** int(math.log(max(value, 1.0), 1024))
    scaled = value / unit
    power = 10.0 ** math.floor(math.log10(scaled))
    return next(unit * power * step for step in (1, 2, 5, 10) if power * step >= scaled * (1 - 1e-9))


def seconds_ticks(seconds: float, most: int = 10) -> tuple[float, ...]:
    """Round times along the axis."""
    if seconds <= 0:
        return (0.0,)
    step = round_top(seconds / most)
    return tuple(step * number for number in range(int(seconds / step + 1e-9) + 1))


def _panel(title: str, lines: tuple[Line, ...], shown: Callable[[float], str], *, base: int = 1024) -> Panel:
    highest = max((value for line in lines for _, value in line.points), default=0.0)
    return Panel(title=title, lines=lines, shown=shown, top=round_top(highest, base), base=base)
