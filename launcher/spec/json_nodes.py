# SPDX-License-Identifier: Apache-2.0
"""JSON text as nodes with positions. Only used when the fast decoder has refused the text.

The standard library's reader keeps neither positions nor the text of numbers, and lets duplicate keys
pass; this one keeps all three for the readers of fields to judge.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right

from launcher.errors import InvalidSpec
from launcher.spec.nodes import (
    BOOLEAN,
    MAX_DEPTH,
    MAX_VALUES,
    NULL,
    NUMBER,
    TEXT,
    Mapping,
    Node,
    Scalar,
    Sequence,
    refuse,
    too_deep,
    too_many,
)

_SPACE = re.compile(r"[ \t\r\n]*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_STRING = re.compile(r'"[^"\\\x00-\x1f]*(?:\\.[^"\\\x00-\x1f]*)*"')
_WORD = re.compile(r"-?[A-Za-z]+")
_WORDS = {"true": BOOLEAN, "false": BOOLEAN, "null": NULL}
_NOT_FINITE = frozenset(("NaN", "Infinity", "-Infinity"))


class NotJSON(InvalidSpec):
    """The text is not JSON. It may still be YAML, which allows more: the caller tries that next."""


def read_json(text: str) -> Node:
    """Read the one JSON value in ``text``.

    Raises ``NotJSON`` for text that is not JSON, and ``InvalidSpec`` for JSON that is beyond the bounds
    or names numbers that are not finite (which YAML would take for text).
    """
    reader = _Reader(text)
    node = reader.value(reader.skip(0), 0)
    if reader.position != len(text):
        raise reader.wrong(reader.position, "expected the end of the text")
    return node


class _Reader:
    """A recursive reader; every method leaves ``position`` behind what it read and the space after it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0
        self._count = 0
        self._lines = [0, *(match.end() for match in re.finditer("\n", text))]

    def skip(self, position: int) -> int:
        match = _SPACE.match(self.text, position)
        self.position = match.end() if match else position
        return self.position

    def place(self, position: int) -> tuple[int, int]:
        line = bisect_right(self._lines, position)
        return line, position - self._lines[line - 1] + 1

    def wrong(self, position: int, message: str) -> NotJSON:
        line, column = self.place(position)
        return NotJSON(refuse(f"not JSON: {message}", line=line, column=column).violations)

    def value(self, start: int, depth: int) -> Node:
        self._count += 1
        if self._count > MAX_VALUES:
            raise too_many(*self.place(start))
        char = self.text[start : start + 1]
        if char == '"':
            return self.string(start)
        if char == "{":
            return self.mapping(start, depth)
        if char == "[":
            return self.sequence(start, depth)
        return self.word_or_number(start)

    def string(self, start: int) -> Scalar:
        match = _STRING.match(self.text, start)
        if match is None:
            raise self.wrong(start, "expected a string in double quotes, without control characters")
        written = match[0]
        if "\\" in written:
            try:
                content = json.loads(written)
            except ValueError as error:
                raise self.wrong(start, "a string with an unknown escape") from error
        else:
            content = written[1:-1]
        self.skip(match.end())
        return Scalar(content, TEXT, *self.place(start))

    def mapping(self, start: int, depth: int) -> Mapping:
        if depth >= MAX_DEPTH:
            raise too_deep(*self.place(start))
        items: list[Node] = []
        node = Mapping(items, *self.place(start))
        here = self.skip(start + 1)
        while not self.ends(here, "}", first=not items):
            if items:
                here = self.skip(here + 1)
            items.append(self.string(here))
            if self.text[self.position : self.position + 1] != ":":
                raise self.wrong(self.position, "expected ':' after a key")
            items.append(self.value(self.skip(self.position + 1), depth + 1))
            here = self.position
        self.skip(here + 1)
        return node

    def sequence(self, start: int, depth: int) -> Sequence:
        if depth >= MAX_DEPTH:
            raise too_deep(*self.place(start))
        items: list[Node] = []
        node = Sequence(items, *self.place(start))
        here = self.skip(start + 1)
        while not self.ends(here, "]", first=not items):
            if items:
                here = self.skip(here + 1)
            items.append(self.value(here, depth + 1))
            here = self.position
        self.skip(here + 1)
        return node

    def ends(self, here: int, bracket: str, *, first: bool) -> bool:
        """Whether the closing ``bracket`` stands at ``here``; if not, a comma must, except at first."""
        char = self.text[here : here + 1]
        if char == bracket:
            return True
        if not first and char != ",":
            raise self.wrong(here, f"expected ',' or '{bracket}'")
        return False

    def word_or_number(self, start: int) -> Scalar:
        match = _NUMBER.match(self.text, start)
        kind: int | None = NUMBER
        if match is None:
            match = _WORD.match(self.text, start)
            if match is not None and match[0] in _NOT_FINITE:
                line, column = self.place(start)
                raise refuse(f"{match[0]} is not a finite number", line=line, column=column)
            kind = _WORDS.get(match[0]) if match is not None else None
        if match is None or kind is None:
            raise self.wrong(start, "expected a value")
        self.skip(match.end())
        return Scalar(match[0], kind, *self.place(start))
