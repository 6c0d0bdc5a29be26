# SPDX-License-Identifier: Apache-2.0
"""A document as a tree of scalars, maps and lists that remember where they stood. No schema, no parsing.

A scalar is kept as text together with what its notation says about its type; the reader of a field
decides what the text means (``no`` is a boolean in one field and a string in another). All sources
(YAML, JSON, data that is already parsed) become this tree, within the same bounds.
"""

from __future__ import annotations

import math
from typing import Final, TypeAlias

import msgspec

from launcher.errors import InvalidSpec, Violation
from launcher.spec.path import WHOLE

# Bounds on what is read at all. A manifest of a machine with 300 disks has about 5,000 values.
MAX_BYTES: Final = 4 * 1024 * 1024
MAX_VALUES: Final = 300_000
MAX_DEPTH: Final = 64
MAX_DOCUMENTS: Final = 1000

# What the notation of a scalar says about its type.
PLAIN: Final = 0  # an unquoted YAML scalar: the field decides
TEXT: Final = 1  # quoted, a block scalar, or a JSON string
NUMBER: Final = 2  # a JSON number
BOOLEAN: Final = 3  # JSON true or false
NULL: Final = 4  # JSON null


class Scalar(msgspec.Struct, gc=False):
    """One value or key. ``line`` and ``column`` count from 1; 0 where there is no text."""

    text: str
    kind: int
    line: int = 0
    column: int = 0


# gc=False: trees are free of cycles (the YAML reader refuses recursive aliases), so counting
# references frees them, and the collector need not look at 100,000 values again and again.
class Mapping(msgspec.Struct, gc=False):
    """Keys and values in the order of the document: ``[key, value, key, value, ...]``."""

    items: list[Node]
    line: int = 0
    column: int = 0


class Sequence(msgspec.Struct, gc=False):
    """The items of a list."""

    items: list[Node]
    line: int = 0
    column: int = 0


Node: TypeAlias = Scalar | Mapping | Sequence

_NULL_TEXTS = frozenset(("", "~", "null", "Null", "NULL"))


def is_null(node: Node) -> bool:
    """Whether the node is a null, which means absent."""
    return type(node) is Scalar and (node.kind == NULL or (node.kind == PLAIN and node.text in _NULL_TEXTS))


def child(node: Mapping, name: str) -> Node | None:
    """The value of the first key ``name``; None if there is none or it is null."""
    for key, value in zip(node.items[::2], node.items[1::2], strict=True):
        if type(key) is Scalar and key.text == name:
            return None if is_null(value) else value
    return None


def refuse(message: str, *, line: int = 0, column: int = 0) -> InvalidSpec:
    """The error for a text that cannot be read any further."""
    return InvalidSpec(
        [
            Violation(
                field=WHOLE,
                type="FieldValueInvalid",
                message=message,
                line=line or None,
                column=column or None,
            )
        ]
    )


def too_deep(line: int, column: int) -> InvalidSpec:
    """The error for a document that is nested more than ``MAX_DEPTH`` levels."""
    return refuse(f"nested too deep: accepted are up to {MAX_DEPTH} levels", line=line, column=column)


def too_many(line: int, column: int) -> InvalidSpec:
    """The error for a document of more than ``MAX_VALUES`` values."""
    return refuse(
        f"too many values: accepted are up to {MAX_VALUES}, counting what aliases repeat",
        line=line,
        column=column,
    )


def from_builtins(raw: object, depth: int = 0) -> Node:
    """Turn parsed data (dict, list, str, int, float, bool, None) into nodes without positions.

    Raises ``InvalidSpec`` for data nested too deep, and for objects of other types.
    """
    if depth > MAX_DEPTH:
        raise too_deep(0, 0)
    if isinstance(raw, dict):
        items: list[Node] = []
        for key, value in raw.items():
            items.append(from_builtins(key, depth + 1))
            items.append(from_builtins(value, depth + 1))
        return Mapping(items)
    if isinstance(raw, list | tuple):
        return Sequence([from_builtins(item, depth + 1) for item in raw])
    return _scalar_from_builtins(raw)


def _scalar_from_builtins(raw: object) -> Scalar:
    if isinstance(raw, str):
        return Scalar(raw, TEXT)
    if raw is None:
        return Scalar("null", NULL)
    if isinstance(raw, bool):
        return Scalar("true" if raw else "false", BOOLEAN)
    if isinstance(raw, int):
        # Python refuses to print integers of more than 4300 digits; nothing accepts one of 100.
        return Scalar(str(raw) if raw.bit_length() < 256 else f"{raw:#x}"[:80], NUMBER)
    if isinstance(raw, float):
        # repr gives the shortest text that reads as the same number: what was written, but for
        # digits beyond the precision of a double.
        return Scalar(repr(raw) if math.isfinite(raw) else str(raw), NUMBER)
    raise refuse(
        f"a value of type {type(raw).__name__} is not accepted: "
        "accepted are objects, lists, text, numbers and booleans"
    )
