# SPDX-License-Identifier: Apache-2.0
"""Which step of the defaults fills in which field, and with what: found by leaving fields out. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from launcher.explain.declared import covers
from launcher.explain.examples import Example, examples
from launcher.explain.manifest import Data, places, plain, typed, without
from launcher.explain.schema import spec_of
from launcher.spec.defaults import DefaultsSettings, Step, trace


@dataclass(frozen=True, slots=True, kw_only=True)
class Filled:
    """A field that a step filled in: its name in the API, the place in the manifest, the value."""

    step: Step
    field: str
    shown: str
    value: Any


def filled(data: Data, settings: DefaultsSettings) -> Iterator[Filled]:
    """What the defaults fill in, step by step, in their order.

    Raises:
        msgspec.ValidationError: the data is no manifest.
    """
    before = _leaves(data)
    for step, vmi in trace(typed(data), settings):
        after = _leaves(plain(vmi))
        for shown, (field, value) in after.items():
            if before.get(shown, (field, None))[1] != value:
                yield Filled(step=step, field=field, shown=shown, value=value)
        before = after


def defaults_of(path: str) -> Mapping[str, tuple[Filled, ...]]:
    """How the field ``path`` and those below it are filled in when the examples leave them out."""
    found: defaultdict[str, dict[tuple[str, str], Filled]] = defaultdict(dict)
    for example in examples():
        for data in _incomplete(example, path):
            try:
                for item in filled(data, example.base.settings):
                    if covers(path, item.field):
                        found[item.field].setdefault((item.step.name, str(item.value)), item)
            except msgspec.ValidationError:
                continue
    return {field: tuple(items.values()) for field, items in found.items()}


def _incomplete(example: Example, path: str) -> Iterator[Data]:
    yield example.base.data
    for place in example.at(path):
        yield without(example.base.data, place.path)


def _leaves(data: Data) -> dict[str, tuple[str, Any]]:
    """By place: the field and the value. Objects without fields are values, too."""
    return {
        place.shown: (place.field.path, place.value)
        for place in places(data, spec_of())
        if place.leaf and place.field is not None and place.field.is_leaf
    }
