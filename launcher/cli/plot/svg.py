# SPDX-License-Identifier: Apache-2.0
"""Draws a migration as SVG: one panel under the other over the same time, decisions numbered. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from launcher.cli.plot.axes import Panel, panels, seconds_ticks
from launcher.migration.curves import Curves, fewer

WIDTH, LEFT, RIGHT = 960, 90, 20
TOP, HEIGHT, GAP = 60, 150, 40
ROW = 16
_STYLE = (
    "text{font:12px sans-serif;fill:#222}.small{font-size:11px;fill:#666}"
    ".title{font-size:15px;font-weight:bold}"
    ".axis{stroke:#999;fill:none}.grid{stroke:#ddd}.mark{stroke:#888;stroke-dasharray:3 3}"
    "polyline{fill:none;stroke-width:1.5}"
)


def svg(curves: Curves) -> str:
    """The whole drawing."""
    drawn = panels(curves)
    bottom = TOP + len(drawn) * (HEIGHT + GAP)
    height = bottom + ROW * (len(curves.marks) + 2)
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
            f'viewBox="0 0 {WIDTH} {height}">',
            f"<style>{_STYLE}</style>",
            f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
            _text(LEFT, 22, curves.title, "title"),
            _text(LEFT, 40, curves.outcome, "small"),
            *_post_copy(curves, bottom),
            *(
                line
                for place, panel in enumerate(drawn)
                for line in _panel(panel, TOP + place * (HEIGHT + GAP), curves)
            ),
            *_marks(curves, bottom),
            "</svg>",
            "",
        )
    )


def _x(seconds: float, curves: Curves) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * (seconds / curves.seconds if curves.seconds > 0 else 0.0)


def _text(x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{named}>{escape(text)}</text>'


def _panel(panel: Panel, top: float, curves: Curves) -> Iterator[str]:
    floor = top + HEIGHT
    for part in (0.0, 0.5, 1.0):
        y = floor - HEIGHT * part
        yield f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield _text(LEFT - 6, y + 4, panel.shown(panel.top * part), "small", "end")
    for at in seconds_ticks(curves.seconds):
        x = _x(at, curves)
        yield f'<line class="axis" x1="{x:.1f}" x2="{x:.1f}" y1="{floor}" y2="{floor + 4}"/>'
        yield _text(x, floor + 16, f"{at:g} s", "small", "middle")
    for begun in curves.passes:
        x = _x(begun, curves)
        yield f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{floor - 4}" y2="{floor}"/>'
    x = float(LEFT)
    for line in panel.lines:
        yield f'<rect x="{x:.1f}" y="{top - 14}" width="10" height="3" fill="{line.color}"/>'
        yield _text(x + 14, top - 8, line.label)
        x += 30 + 7 * len(line.label)
        points = " ".join(
            f"{_x(t, curves):.1f},{floor - HEIGHT * min(value / panel.top, 1.0):.1f}"
            for t, value in fewer(line.points, WIDTH - LEFT - RIGHT, curves.seconds)
        )
        if points:
            yield f'<polyline stroke="{line.color}" points="{points}"/>'
    yield f'<path class="axis" d="M{LEFT} {top} V{floor} H{WIDTH - RIGHT}"/>'


def _post_copy(curves: Curves, bottom: float) -> Iterator[str]:
    if curves.post_copy is None:
        return
    x = _x(curves.post_copy, curves)
    width, height = WIDTH - RIGHT - x, bottom - GAP - TOP
    yield f'<rect x="{x:.1f}" y="{TOP}" width="{width:.1f}" height="{height}" fill="#f3eefc"/>'
    yield _text(x + 4, TOP + 12, "post-copy", "small")


def _marks(curves: Curves, bottom: float) -> Iterator[str]:
    for number, mark in enumerate(curves.marks, start=1):
        x = _x(mark.t, curves)
        y = bottom - 10
        yield f'<line class="mark" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{y - 12}"/>'
        yield _text(x, y, str(number), "small", "middle")
        row = bottom + ROW * number
        yield _text(LEFT, row, f"{number}. {mark.t:.1f} s  {mark.text}: {mark.reason}")
