# SPDX-License-Identifier: Apache-2.0
"""How a rule words what it found: one constructor for each type of violation. Finds nothing itself."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from launcher.errors import Violation
from launcher.spec.findings import DUPLICATE, FORBIDDEN, INVALID, NOT_SUPPORTED, REQUIRED

NOT_FOUND: Final = "FieldValueNotFound"

_LONGEST_VALUE: Final = 60
_LONGEST_KEY: Final = 120
_LONGEST_MESSAGE: Final = 600


def invalid(field: str, value: object, message: str) -> Violation:
    """The value breaks a rule; ``message`` says which, and what would be accepted."""
    return Violation(field=field, type=INVALID, message=_sentence(message), value=shown(value))


def required(field: str, message: str) -> Violation:
    """A value is missing; ``message`` says what is needed."""
    return Violation(field=field, type=REQUIRED, message=_sentence(message))


def unsupported(field: str, value: object, accepted: Iterable[str], where: str = "") -> Violation:
    """The value is not one of those accepted (``where``: only there)."""
    names = ", ".join(accepted)
    message = f"not supported{where}; accepted: {names}" if names else f"not supported{where}"
    return Violation(field=field, type=NOT_SUPPORTED, message=_sentence(message), value=shown(value))


def duplicate(field: str, value: object, first: str) -> Violation:
    """The value must be unique, and ``first`` is the field that has it already."""
    return Violation(
        field=field, type=DUPLICATE, message=f"is taken by {first}; must be unique", value=shown(value)
    )


def not_found(field: str, value: object, message: str) -> Violation:
    """The value names something that does not exist."""
    return Violation(field=field, type=NOT_FOUND, message=_sentence(message), value=shown(value))


def forbidden(field: str, message: str) -> Violation:
    """The field must not be used here."""
    return Violation(field=field, type=FORBIDDEN, message=_sentence(message))


def keyed(field: str, key: str) -> str:
    """The path of one entry of a map: ``keyed("metadata.labels", "app") == "metadata.labels[app]"``."""
    return f"{field}[{_one_line(key, _LONGEST_KEY)}]"


def shown(value: object) -> str:
    """A value as one short line."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return _one_line(str(value), _LONGEST_VALUE)


def _sentence(message: str) -> str:
    """A message may repeat what the user wrote: a name, another field's value."""
    return _one_line(message, _LONGEST_MESSAGE)


def _one_line(text: str, longest: int) -> str:
    if len(text) > longest:
        text = text[: longest - 3] + "..."
    return text if text.isprintable() else text.encode("unicode_escape").decode()[: 2 * longest]
