# SPDX-License-Identifier: Apache-2.0
"""A domain document printed with the sources of its parts beside them, as XML comments. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from copy import copy
from typing import Final

from lxml import etree

from launcher.domain.reading import Parsed
from launcher.explain.document import EXISTS, Atom
from launcher.explain.provenance import Provenance

# Comments start in this column, or two blanks after a longer line.
_COLUMN: Final = 64
_NAMESPACE: Final = re.compile(r' xmlns(?::\w+)?="[^"]*"')


def annotated(found: Provenance) -> str:
    """The document, well-formed as before, with a comment on each line that says where it comes from."""
    numbers = {element: number for number, element in enumerate(found.document.elements)}
    return "\n".join(_lines(found, numbers, found.document.root, 0, ()))


def labels(found: Provenance, atom: Atom) -> tuple[str, ...]:
    """The names of the sources of one part."""
    return tuple(source.label for source in found.sources.get(atom, ()))


def _lines(
    found: Provenance, numbers: dict[Parsed, int], element: Parsed, depth: int, around: tuple[str, ...]
) -> Iterator[str]:
    number = numbers[element]
    own = labels(found, (number, EXISTS))
    comment = _comment(found, element, number, around)
    start = "  " * depth + _start(element)
    children = list(element)
    yield _beside(start, comment)
    for child in children:
        yield from _lines(found, numbers, child, depth + 1, own)
    if children:
        yield f"{'  ' * depth}</{_tag(element)}>"


def _beside(line: str, comment: str) -> str:
    return f"{line:<{_COLUMN}}  <!-- {comment} -->" if comment else line


def _comment(found: Provenance, element: Parsed, number: int, around: tuple[str, ...]) -> str:
    """Sources of the element unless they are those of the element around it; then those of attributes.

    Devices always say theirs: who looks for where one comes from looks beside it.
    """
    exists = labels(found, (number, EXISTS))
    parent = element.getparent()
    device = parent is not None and parent.tag == "devices"
    parts = [] if exists == around and not device else [", ".join(exists)]
    for name in map(str, element.attrib):
        own = labels(found, (number, f"@{name}"))
        if own and own != exists:
            parts.append(f"@{name}: {', '.join(own)}")
    text = labels(found, (number, "text"))
    if text and text != exists:
        parts.append(", ".join(text))
    # Two hyphens end a comment, and keys of labels and annotations may hold them.
    return "; ".join(part for part in parts if part).replace("--", "- -")


def _start(element: Parsed) -> str:
    """The line of an element: complete when it has no children, else its start tag."""
    alone = copy(element)
    del alone[:]
    alone.tail = None
    if not (alone.text or "").strip():
        alone.text = None
    written = etree.tostring(alone, encoding="unicode")
    parent = element.getparent()
    if parent is not None and parent.nsmap == element.nsmap:
        written = _NAMESPACE.sub("", written, count=len(element.nsmap))
    return written.removesuffix("/>") + ">" if len(element) else written


def _tag(element: Parsed) -> str:
    name = etree.QName(element).localname
    return f"{element.prefix}:{name}" if element.prefix else name
