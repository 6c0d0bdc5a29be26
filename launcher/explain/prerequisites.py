# SPDX-License-Identifier: Apache-2.0
"""What a manifest must say beside a field: examples are judged without their other fields. Pure."""

from __future__ import annotations

from operator import itemgetter

import msgspec

from launcher.explain.declared import covers
from launcher.explain.examples import Example, examples
from launcher.explain.manifest import Data, Place, typed, without
from launcher.spec.defaults import DefaultsSettings
from launcher.spec.rules import check


def prerequisites(path: str) -> dict[str, object]:
    """Other fields that the field ``path`` needs, with values that will do: those of the smallest example."""
    fitting = (
        (len(example.places), example, place)
        for example in examples()
        if example.valid
        for place in example.at(path)
        if place.field is not None and place.field.path == path and not _is_item(place)
    )
    found = min(fitting, key=itemgetter(0), default=None)
    if found is None:
        return {}
    return dict(reversed(_needed(found[1], found[2]).items()))


def _needed(example: Example, place: Place) -> dict[str, object]:
    """From the last to the first; what is around something that is needed is not worth naming beside it."""
    settings = example.base.settings
    own = place.field.path if place.field is not None else ""
    needed: dict[str, object] = {}
    for other in reversed(example.places):
        path = other.field.path if other.field is not None else own
        if (
            _is_item(other)
            or covers(own, path)
            or _overlap(other, place)
            or any(covers(path, inner) for inner in needed)
        ):
            continue
        lacking = without(example.base.data, other.path)
        with_it = _found(lacking, settings)
        without_it = _found(without(lacking, place.path), settings)
        if with_it is not None and without_it is not None and with_it - without_it:
            needed[path] = other.value
    return needed


def _is_item(place: Place) -> bool:
    """Whether it is one of a list: without it, others would change their places."""
    return isinstance(place.path[-1], int)


def _overlap(one: Place, other: Place) -> bool:
    length = min(len(one.path), len(other.path))
    return one.path[:length] == other.path[:length]


def _found(data: Data, settings: DefaultsSettings) -> frozenset[tuple[str, str]] | None:
    """What the rules say; None if something that every manifest needs is missing."""
    try:
        vmi = typed(data)
    except msgspec.ValidationError:
        return None
    return frozenset((v.field, v.message) for v in check(vmi, settings=settings, creating=False))
