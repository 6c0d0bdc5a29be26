# SPDX-License-Identifier: Apache-2.0
"""What else could stand at a place of a manifest: nothing, or another value that the rules accept. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import msgspec

from launcher.errors import Violation
from launcher.explain.manifest import (
    Data,
    Path,
    Place,
    places,
    renamed,
    typed,
    with_value,
    without,
    without_named,
)
from launcher.explain.schema import spec_of
from launcher.spec.defaults import DefaultsSettings
from launcher.spec.findings import NOT_SUPPORTED
from launcher.spec.model import Quantity, VirtualMachineInstance
from launcher.spec.rules import check

# No name, path or word that any rule accepts.
NONSENSE: Final = "~ none of these ~"
# An amount, but no size that any hardware has.
ODD_AMOUNT: Final = "3Ki"
# One removal may leave something else without what it needs, and so on; chains in the rules are short.
MOST_ROUNDS: Final = 4

_ACCEPTED: Final = re.compile(r"accepted: ([\w.*, +-]+)$")
_AMOUNT: Final = re.compile(r"([0-9]+)([kMGTPE]i?)")


def changes(data: Data, place: Place, settings: DefaultsSettings) -> Iterator[Data]:
    """The manifest without the place, then with other values there; the first ones say most."""
    if _is_item_name(place):
        yield from renamings(data, place)
    yield without(data, place.path)
    name = place.value.get("name") if isinstance(place.value, dict) else None
    if isinstance(name, str) and isinstance(place.path[-1], int):
        yield without_named(data, name)
    if place.leaf:
        yield from replacements(data, place, settings)


def replacements(data: Data, place: Place, settings: DefaultsSettings) -> Iterator[Data]:
    """The manifest with other values at a leaf."""
    for value in _values(data, place, settings):
        yield with_value(data, place.path, value)


def renamings(data: Data, place: Place) -> Iterator[Data]:
    """The manifest with another name at a leaf and everywhere else where it stands."""
    if isinstance(place.value, str) and place.path[0] == "spec":
        new = _flipped(place.value)
        for items_only in (True, False):
            other = renamed(data, place.value, new, items_only=items_only)
            if other != data:
                yield other


def _is_item_name(place: Place) -> bool:
    return len(place.path) > 1 and place.path[-1] == "name" and isinstance(place.path[-2], int)


def repair(data: Data, settings: DefaultsSettings) -> VirtualMachineInstance | None:
    """The manifest without what the rules refuse in it, until they accept it; None if they never do."""
    for _ in range(MOST_ROUNDS):
        try:
            vmi = typed(data)
        except msgspec.ValidationError:
            return None
        violations = check(vmi, settings=settings, creating=False)
        if not violations:
            return vmi
        known = {place.shown: place.path for place in places(data, spec_of())}
        paths = {known[violation.field] for violation in violations if violation.field in known}
        if not paths:
            return None
        # From the end, so that positions in lists stay what they are.
        for path in sorted(paths, key=repr, reverse=True):
            data = _removed(data, path)
    return None


def violations_at(data: Data, place: Place, settings: DefaultsSettings) -> tuple[Violation, ...]:
    """What the rules find at a place of a manifest; nothing, too, for one that cannot be read."""
    try:
        vmi = typed(data)
    except msgspec.ValidationError:
        return ()
    found = check(vmi, settings=settings, creating=False)
    return tuple(violation for violation in found if violation.field == place.shown)


def listed_words(violations: tuple[Violation, ...]) -> tuple[str, ...]:
    """The words that messages list as accepted; not all of them need to be values."""
    for violation in violations:
        match = _ACCEPTED.search(violation.message)
        if match is not None:
            return tuple(word.strip().rstrip("*") for word in match[1].split(","))
    return ()


def accepted_words(violation: Violation) -> tuple[str, ...]:
    """The values that a violation of the type NotSupported lists."""
    return listed_words((violation,)) if violation.type == NOT_SUPPORTED else ()


def _removed(data: Data, path: Path) -> Data:
    """The manifest without the value, or without the nearest thing around it that can be missing."""
    while len(path) > 1:
        less = without(data, path)
        try:
            typed(less)
        except msgspec.ValidationError:
            path = path[:-1]
        else:
            return less
    return data


def _values(data: Data, place: Place, settings: DefaultsSettings) -> Iterator[object]:
    value, field = place.value, place.field
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        yield from (value + 1, value - 1, value * 2, value // 2)
    elif isinstance(value, str) and field is not None and field.scalar == "quantity":
        yield from _amounts(value)
    elif isinstance(value, str):
        words = field.enum if field is not None else ()
        if not words:
            probe = ODD_AMOUNT if _AMOUNT.fullmatch(value) else NONSENSE
            words = listed_words(violations_at(with_value(data, place.path, probe), place, settings))
        yield from (word for word in words if word != value)
        match = _AMOUNT.fullmatch(value)
        if match is not None:
            yield f"{int(match[1]) * 2}{match[2]}"
        yield _flipped(value)


def _amounts(text: str) -> Iterator[str]:
    try:
        size = Quantity(text)
    except ValueError:
        return
    if size.is_integer:
        yield str(size.bytes_floor() * 2)
        yield str(size.bytes_floor() // 2)


def _flipped(text: str) -> str:
    """The text with its last letter or digit changed to another of its kind: still an address, path, UUID."""
    for index in range(len(text) - 1, -1, -1):
        character = text[index]
        if character.isascii() and character.isalnum():
            return text[:index] + _other(character) + text[index + 1 :]
    return f"{text}x"


def _other(character: str) -> str:
    if character.isdigit():
        return str(int(character) ^ 1)
    return "a" if character in "bB" else "b"
