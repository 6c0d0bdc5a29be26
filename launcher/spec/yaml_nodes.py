# SPDX-License-Identifier: Apache-2.0
"""YAML text as nodes with positions: libyaml's events, none of PyYAML's guesses about types.

Refused here: syntax errors, tags other than YAML's own types, recursive aliases, and aliases that
expand beyond the bounds. Aliases are counted with everything they repeat, so nothing is expanded twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import yaml
from yaml._yaml import CParser
from yaml.events import (
    AliasEvent,
    CollectionEndEvent,
    DocumentEndEvent,
    DocumentStartEvent,
    Event,
    MappingStartEvent,
    NodeEvent,
    ScalarEvent,
    SequenceStartEvent,
)

from launcher.errors import InvalidSpec
from launcher.spec.nodes import (
    BOOLEAN,
    MAX_BYTES,
    MAX_DEPTH,
    MAX_DOCUMENTS,
    MAX_VALUES,
    NULL,
    NUMBER,
    PLAIN,
    TEXT,
    Mapping,
    Node,
    Scalar,
    Sequence,
    refuse,
    too_deep,
    too_many,
)

_CORE: Final = "tag:yaml.org,2002:"
_SCALAR_TAGS: Final = {
    f"{_CORE}str": TEXT,
    f"{_CORE}int": NUMBER,
    f"{_CORE}float": NUMBER,
    f"{_CORE}bool": BOOLEAN,
    f"{_CORE}null": NULL,
}
_ACCEPTED_TAGS: Final = "accepted are !!str, !!int, !!float, !!bool, !!null, !!map and !!seq, or no tag"


def read_yaml(text: str) -> Iterator[Node]:
    """Read the documents of ``text`` one after the other; an empty document is a null scalar.

    Raises ``InvalidSpec`` with the position of what cannot be read; the documents before it were yielded.
    """
    try:
        parser = CParser(text)
        composer = _Composer(parser)
        while parser.check_event():
            event = parser.get_event()
            if isinstance(event, DocumentStartEvent):
                yield composer.document(event)
    except yaml.MarkedYAMLError as error:
        raise _syntax_error(error) from error
    except yaml.reader.ReaderError as error:
        raise _forbidden_character(text, error) from error


class _Anchored:
    """A node that aliases may repeat, and what one repetition costs."""

    __slots__ = ("depth", "node", "size", "text")

    def __init__(self, node: Node) -> None:
        self.node = node
        self.size = self.text = self.depth = -1  # not complete yet


class _Frame:
    """A map or list that is being read."""

    __slots__ = ("anchored", "deepest", "items", "size", "text")

    def __init__(self, items: list[Node], anchored: _Anchored | None, size: int, text: int) -> None:
        self.items, self.anchored = items, anchored
        self.size, self.text = size, text  # the counters when it began
        self.deepest = 0  # levels below it


class _Composer:
    """Puts events together; one for a text, so that the bounds hold for all its documents together."""

    def __init__(self, parser: CParser) -> None:
        self._next: Callable[[], Any] = parser.get_event
        self._documents = 0
        self._size = 0
        self._text = 0
        self._anchors: dict[str, _Anchored] = {}
        self._open: list[_Frame] = []

    def document(self, start: DocumentStartEvent) -> Node:
        """The document whose start event was just taken."""
        self._documents += 1
        if self._documents > MAX_DOCUMENTS:
            line, column = _place(start)
            raise refuse(f"too many documents: accepted are up to {MAX_DOCUMENTS}", line=line, column=column)
        self._anchors.clear()
        top = _Frame([], None, 0, 0)
        self._open = [top]
        # The loop sees every event of a manifest: it tests the commonest kinds first, by identity.
        while True:
            event = self._next()
            kind = type(event)
            if kind is ScalarEvent:
                self._scalar(event)
            elif kind is MappingStartEvent or kind is SequenceStartEvent:
                self._begin(event)
            elif isinstance(event, CollectionEndEvent):
                self._end()
            elif kind is AliasEvent:
                self._alias(event)
            elif kind is DocumentEndEvent:
                return top.items[0]

    def _count(self, event: Event, size: int, text: int) -> None:
        self._size += size
        self._text += text
        if self._size > MAX_VALUES or self._text > MAX_BYTES:
            raise too_many(*_place(event))

    def _scalar(self, event: ScalarEvent) -> None:
        value: str = event.value
        if event.tag is not None and event.tag != "!":
            tagged = _SCALAR_TAGS.get(event.tag)
            if tagged is None:
                raise _bad_tag(event)
            kind = tagged
        else:
            kind = PLAIN if event.implicit[0] and not event.style else TEXT
        self._count(event, 1, len(value))
        line, column = _place(event)
        node = Scalar(value, kind, line, column)
        self._open[-1].items.append(node)
        if event.anchor is not None:
            anchored = self._anchors[event.anchor] = _Anchored(node)
            anchored.size, anchored.text, anchored.depth = 1, len(value), 0

    def _begin(self, event: MappingStartEvent | SequenceStartEvent) -> None:
        if len(self._open) > MAX_DEPTH:
            raise too_deep(*_place(event))
        line, column = _place(event)
        is_map = isinstance(event, MappingStartEvent)
        if event.tag is not None and event.tag not in ("!", _CORE + ("map" if is_map else "seq")):
            raise _bad_tag(event)
        items: list[Node] = []
        node = Mapping(items, line, column) if is_map else Sequence(items, line, column)
        self._open[-1].items.append(node)
        anchored = None
        if event.anchor is not None:
            anchored = self._anchors[event.anchor] = _Anchored(node)
        self._open.append(_Frame(items, anchored, self._size, self._text))
        self._count(event, 1, 0)

    def _end(self) -> None:
        frame = self._open.pop()
        parent = self._open[-1]
        parent.deepest = max(parent.deepest, frame.deepest + 1)
        if frame.anchored is not None:
            frame.anchored.size = self._size - frame.size
            frame.anchored.text = self._text - frame.text
            frame.anchored.depth = frame.deepest + 1

    def _alias(self, event: AliasEvent) -> None:
        anchored = self._anchors.get(event.anchor or "")
        line, column = _place(event)
        if anchored is None:
            raise refuse("an alias without an anchor before it", line=line, column=column)
        if anchored.size < 0:
            raise refuse("an alias inside of what it repeats", line=line, column=column)
        if len(self._open) + anchored.depth > MAX_DEPTH + 1:
            raise too_deep(line, column)
        self._count(event, anchored.size, anchored.text)
        frame = self._open[-1]
        frame.deepest = max(frame.deepest, anchored.depth)
        frame.items.append(anchored.node)


def _place(event: Event) -> tuple[int, int]:
    mark = event.start_mark
    return (mark.line + 1, mark.column + 1) if mark is not None else (0, 0)


def _bad_tag(event: NodeEvent) -> InvalidSpec:
    line, column = _place(event)
    tag = str(getattr(event, "tag", ""))[:60].replace(_CORE, "!!")
    return refuse(f"the tag {tag!r} is not accepted; {_ACCEPTED_TAGS}", line=line, column=column)


def _syntax_error(error: yaml.MarkedYAMLError) -> InvalidSpec:
    mark = error.problem_mark or error.context_mark
    said = ", ".join(part for part in (error.context, error.problem) if part)
    line, column = (mark.line + 1, mark.column + 1) if mark is not None else (0, 0)
    return refuse(f"not YAML: {said}", line=line, column=column)


def _forbidden_character(text: str, error: yaml.reader.ReaderError) -> InvalidSpec:
    # libyaml counts bytes, the reader of the manifest counts characters.
    before = text.encode()[: max(error.position, 0)].decode(errors="ignore")
    line = before.count("\n") + 1
    column = len(before) - (before.rfind("\n") + 1) + 1
    return refuse(
        "not YAML: a control character; accepted are printable characters", line=line, column=column
    )
