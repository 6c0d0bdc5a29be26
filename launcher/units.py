# SPDX-License-Identifier: Apache-2.0
"""Sizes and durations: the only module that spells out 1024. Standard library only."""

from __future__ import annotations

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB
TIB = 1024 * GIB


def ceil_div(value: int, divisor: int) -> int:
    """Divide, rounding up: ``ceil_div(5, 2) == 3``."""
    return -(-value // divisor)


def human_bytes(size: float) -> str:
    """Render a size for people: ``human_bytes(1536) == '1.5 KiB'``."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(size) < 1024 or unit == "TiB":
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError("unreachable")


def human_ms(milliseconds: float) -> str:
    """Render a duration for people: ``human_ms(1500) == '1.50 s'``."""
    if milliseconds < 1000:
        return f"{milliseconds:.0f} ms"
    seconds = milliseconds / 1000
    if seconds < 120:
        return f"{seconds:.2f} s"
    return f"{int(seconds // 60)} min {int(seconds % 60)} s"
