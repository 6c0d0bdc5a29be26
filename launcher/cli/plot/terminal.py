# SPDX-License-Identifier: Apache-2.0
"""Draws a migration on a terminal in braille dots: panels over the same time, decisions below by letter."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from launcher.cli.plot.axes import Panel, panels, seconds_ticks
from launcher.migration.curves import Curves, Mark, Point, fewer

LABEL = 12
ROWS = 6
NARROWEST = 20
_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
# Unicode's braille patterns: the bit of each dot, by row and column of the cell.
_BITS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
_EMPTY = 0x2800


class Canvas:
    """A grid of braille cells, each two dots wide and four high; the last color put into a cell stays."""

    def __init__(self, columns: int, rows: int) -> None:
        self._cells = [[0] * columns for _ in range(rows)]
        self._colors = [[""] * columns for _ in range(rows)]
        self.width, self.height = columns * 2, rows * 4

    def dot(self, x: int, y: int, color: str) -> None:
        """Set a dot; ``y`` counts from the bottom. Outside is ignored."""
        if not (0 <= x < self.width and 0 <= y < self.height):
            return
        row, column = (self.height - 1 - y) // 4, x // 2
        self._cells[row][column] |= _BITS[(self.height - 1 - y) % 4][x % 2]
        self._colors[row][column] = color

    def line(self, start: tuple[int, int], end: tuple[int, int], color: str) -> None:
        """Dots from ``start`` to ``end``."""
        (x0, y0), (x1, y1) = start, end
        steps = max(abs(x1 - x0), abs(y1 - y0), 1)
        for step in range(steps + 1):
            self.dot(x0 + round((x1 - x0) * step / steps), y0 + round((y1 - y0) * step / steps), color)

    def rows(self) -> list[Text]:
        """The drawing, a text for each row."""
        return [
            Text.assemble(*((chr(_EMPTY | cell), color) for cell, color in zip(cells, colors, strict=True)))
            for cells, colors in zip(self._cells, self._colors, strict=True)
        ]


def show(curves: Curves, out: TextIO, *, width: int | None = None) -> None:
    """Draw on ``out``, as wide as the terminal (or 100 columns)."""
    console = Console(file=out, width=width if out.isatty() or width else 100, highlight=False)
    columns = max(console.width - LABEL - 2, NARROWEST)
    console.print(Text(curves.title, style="bold"))
    console.print(Text(curves.outcome))
    if not curves.remaining:
        console.print(Text("There is nothing to draw: no byte was seen to move."))
        return
    for panel in panels(curves):
        for row in _panel(panel, curves, columns):
            console.print(row, no_wrap=True)
    console.print(_axis(curves, columns), no_wrap=True)
    console.print(_letters(curves, columns), no_wrap=True)
    if curves.marks:
        console.print(_legend(curves.marks))


def _panel(panel: Panel, curves: Curves, columns: int) -> list[Text]:
    canvas = Canvas(columns, ROWS)
    for line in panel.lines:
        _draw(canvas, line.points, line.color, panel.top, curves.seconds)
    head = Text(" " * LABEL)
    for line in panel.lines:
        head.append(f" {line.label}", style=line.color)
    rows = [head]
    for number, row in enumerate(canvas.rows()):
        label = panel.shown(panel.top) if number == 0 else panel.shown(0) if number == ROWS - 1 else ""
        rows.append(Text(f"{label:>{LABEL}}│").append_text(row))
    return rows


def _draw(canvas: Canvas, points: Sequence[Point], color: str, top: float, seconds: float) -> None:
    dots = [
        (
            round(t / seconds * (canvas.width - 1)) if seconds > 0 else 0,
            round(min(value / top, 1.0) * (canvas.height - 1)),
        )
        for t, value in fewer(points, canvas.width, seconds)
    ]
    for start, end in pairwise(dots) if len(dots) > 1 else ((dot, dot) for dot in dots):
        canvas.line(start, end, color)


def _axis(curves: Curves, columns: int) -> Text:
    """Times under the panels."""
    row = [" "] * columns
    for at in seconds_ticks(curves.seconds, most=max(columns // 10, 1)):
        place = round(at / curves.seconds * (columns - 1)) if curves.seconds > 0 else 0
        label = f"{at:g}s"
        if place + len(label) <= columns:
            row[place : place + len(label)] = label
    return Text(" " * LABEL + "└" + "".join(row))


def _letters(curves: Curves, columns: int) -> Text:
    """Where each decision was; of several in one place the last is seen."""
    row = [" "] * columns
    for number, mark in enumerate(curves.marks):
        place = round(mark.t / curves.seconds * (columns - 1)) if curves.seconds > 0 else 0
        row[min(place, columns - 1)] = _letter(number)
    return Text(" " * (LABEL + 1) + "".join(row), style="bold")


def _legend(marks: Sequence[Mark]) -> Table:
    table = Table(show_header=False, box=None, padding=(0, 1))
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column()
    for number, mark in enumerate(marks):
        table.add_row(_letter(number), f"{mark.t:.1f} s", Text(mark.text), Text(mark.reason))
    return table


def _letter(number: int) -> str:
    return _LETTERS[number % len(_LETTERS)]
