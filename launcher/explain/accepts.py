# SPDX-License-Identifier: Apache-2.0
"""What a field accepts: asked of the rules by showing them values that nothing accepts. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from operator import itemgetter
from typing import Final

from launcher.errors import Violation
from launcher.explain.examples import examples
from launcher.explain.manifest import Place, with_value
from launcher.explain.schema import Field
from launcher.explain.variants import NONSENSE, ODD_AMOUNT, accepted_words, violations_at

_ACCEPTED: Final = re.compile(r"accepted(?: is| are|:) (.+)$")
# What is said of a name that leads nowhere.
_REFERENCE: Final = re.compile(r"there is no (\w+) of this name(| in \S+)")
# The value of the example that a message compares with says nothing in general.
_EXAMPLE: Final = re.compile(r"(?<=\w), [0-9][0-9A-Za-z]*$")
_TOO_LONG: Final = 70_000


def accepts(field: Field) -> tuple[str, ...]:
    """What the field accepts, a phrase each; nothing if it is an object or everything of its type goes."""
    if field.scalar == "boolean":
        return ("true or false",)
    if field.enum:
        return (f"one of {', '.join(field.enum)}",)
    phrases = dict.fromkeys(phrase for violation in _probed(field) if (phrase := _phrase(violation)))
    return tuple(phrases)


def _probed(field: Field) -> Iterator[Violation]:
    """What the rules say to wrong values, in the smallest example: the least else can be wrong there."""
    fitting = (
        (len(example.places), example, place)
        for example in examples()
        for place in example.at(field.path)
        if place.leaf and place.field is not None and place.field.path == field.path
    )
    found = min(fitting, key=itemgetter(0), default=None)
    if found is None:
        return
    _, example, place = found
    for value in _wrong(place):
        data = with_value(example.base.data, place.path, value)
        yield from violations_at(data, place, example.base.settings)


def _wrong(place: Place) -> Iterator[object]:
    scalar = place.field.scalar if place.field is not None else ""
    if scalar == "integer":
        yield from (-(2**31), 2**31 - 1, 3)
    elif scalar == "integer or text":
        yield from (0, NONSENSE)
    elif scalar == "quantity":
        yield from ("-1", "8E", "1")
    elif scalar == "text":
        yield from (NONSENSE, ODD_AMOUNT, "x" * _TOO_LONG)


def _phrase(violation: Violation) -> str:
    """The part of a message that says what would be right."""
    words = accepted_words(violation)
    if words:
        return f"one of {', '.join(words)}"
    message = violation.message
    match = _ACCEPTED.search(message)
    if match is not None:
        return match[1]
    reference = _REFERENCE.fullmatch(message)
    if reference is not None:
        article = "an" if reference[1][0] in "aeiou" else "a"
        return f"the name of {article} {reference[1]}{reference[2]}"
    return _EXAMPLE.sub("", message).removeprefix("not ")
