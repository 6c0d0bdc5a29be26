# SPDX-License-Identifier: Apache-2.0
"""What is wrong with a document: collected, worded, bounded in number, and silent about secrets."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection
from typing import Final

from launcher.errors import Violation
from launcher.spec.nodes import BOOLEAN, NULL, NUMBER, Mapping, Node, Scalar, Sequence
from launcher.spec.path import WHOLE, FieldPath

# More than anybody reads, few enough for one gRPC message.
MAX_REPORTED: Final = 1000
_LONGEST_VALUE: Final = 60
# A longer key is not a typing error, and comparing it would take long.
_LONGEST_NAME: Final = 64
# As many alternatives as one line can name.
_MOST_NAMES: Final = 16

# Fields whose content is a password, a key, or text that usually holds one.
_SECRET_FIELDS: Final = frozenset(
    (
        ".userData",
        ".userDataBase64",
        ".networkData",
        ".networkDataBase64",
        ".dhCert",
        ".session",
    )
)

# Characters that no domain XML and no terminal should get: C0 but for tab and line ends, DEL, C1 but
# for NEL, halves of surrogate pairs, non-characters.
_FORBIDDEN: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff\ufffe\uffff]")

INVALID: Final = "FieldValueInvalid"
REQUIRED: Final = "FieldValueRequired"
NOT_SUPPORTED: Final = "FieldValueNotSupported"
DUPLICATE: Final = "FieldValueDuplicate"
UNKNOWN: Final = "FieldUnknown"
WRONG_TYPE: Final = "FieldTypeInvalid"
FORBIDDEN: Final = "Forbidden"


class Findings:
    """Violations in the order they were found. After ``MAX_REPORTED`` only their number is kept."""

    def __init__(self) -> None:
        self._violations: list[Violation] = []
        self._more = 0
        self.unread_object = False
        """An object in a list could not be read at all: a disk, a network."""
        self.nameless = False
        """Something or its name is missing, so that others may look for it in vain."""
        self.probable: set[str] = set()
        """Fields that were probably meant by unknown ones."""
        self._meant: dict[tuple[str, int], str] = {}

    def __len__(self) -> int:
        return len(self._violations) + self._more

    def violations(self) -> tuple[Violation, ...]:
        """Everything that was found; if there was too much, the last one says how much more."""
        if not self._more:
            return tuple(self._violations)
        errors = "error" if self._more == 1 else "errors"
        last = Violation(field=WHOLE, type=INVALID, message=f"and {self._more} more {errors}")
        return (*self._violations, last)

    def take(self, violation: Violation) -> None:
        """Add a finding that somebody else made."""
        if not self._is_full():
            self._violations.append(violation)

    def add(self, path: FieldPath, kind: str, message: str, node: Node, *, show: bool = True) -> None:
        """Add one finding about ``node`` at ``path``; its value is shown unless it may be secret."""
        if self._is_full():
            return
        self._violations.append(
            Violation(
                field=str(path),
                type=kind,
                message=message,
                value=shorten(node) if show and not is_secret(path) else "",
                line=node.line or None,
                column=node.column or None,
            )
        )

    def wrong_type(self, path: FieldPath, node: Node, expected: str, hint: str = "") -> None:
        """``node`` is not of the kind of value that the field takes."""
        if not self._is_full():
            got = describe(node, show=not is_secret(path))
            self.add(path, WRONG_TYPE, f"expected {expected}, got {got}{hint}", node)

    def unknown(self, parent: FieldPath, key: Scalar, known: Collection[str]) -> None:
        """There is no field of this name. Its value is not shown: the field may be a misspelt secret."""
        if not self._is_full():
            meant = self._closest(key.text, known)
            accepted = f", did you mean {meant!r}?" if meant else f"; {_listed(known, 'accepted here')}"
            self.add(parent / key.text, UNKNOWN, f"unknown field{accepted}", key, show=False)
            if meant:
                self.probable.add(str(parent / meant))

    def not_supported(self, path: FieldPath, node: Scalar, accepted: Collection[str]) -> None:
        """The value is not one of those that the field takes."""
        if not self._is_full():
            meant = self._closest(node.text, accepted)
            hint = f"; did you mean {meant!r}?" if meant else ""
            self.add(path, NOT_SUPPORTED, f"not supported; {_listed(accepted, 'accepted')}{hint}", node)

    def _is_full(self) -> bool:
        if len(self._violations) < MAX_REPORTED:
            return False
        self._more += 1
        return True

    def _closest(self, text: str, known: Collection[str]) -> str:
        """The known name that ``text`` resembles, or nothing. ``known`` must outlive this object."""
        if len(text) > _LONGEST_NAME:
            return ""
        asked = (text, id(known))
        if asked not in self._meant:
            same = [name for name in known if name.lower() == text.lower()]
            self._meant[asked] = next(iter(same or difflib.get_close_matches(text, known, 1)), "")
        return self._meant[asked]


def is_secret(path: FieldPath) -> bool:
    """Whether the field or one above it holds what must not be shown."""
    return not _SECRET_FIELDS.isdisjoint(path.segments())


def forbidden_character(text: str) -> str:
    """Name the first character that no text of a manifest may contain, or nothing."""
    if text.isprintable():
        return ""
    match = _FORBIDDEN.search(text)
    return f"U+{ord(match[0]):04X}" if match else ""


def shorten(node: Node) -> str:
    """A value as it is shown beside a finding: one short line."""
    if isinstance(node, Mapping):
        return "{...}" if node.items else "{}"
    if isinstance(node, Sequence):
        return "[...]" if node.items else "[]"
    text = node.text[: _LONGEST_VALUE + 1]
    if len(text) > _LONGEST_VALUE:
        text = text[: _LONGEST_VALUE - 3] + "..."
    return text if text.isprintable() else text.encode("unicode_escape").decode()[: 2 * _LONGEST_VALUE]


def describe(node: Node, *, show: bool = True) -> str:
    """A value in the words of a sentence: ``a list``, ``the number 5``, ``'maybe'``."""
    if isinstance(node, Mapping):
        return "an object"
    if isinstance(node, Sequence):
        return "a list"
    if node.kind == NUMBER:
        return f"the number {shorten(node)}" if show else "a number"
    if node.kind == BOOLEAN:
        return f"the boolean {shorten(node)}" if show else "a boolean"
    if node.kind == NULL:
        return "null"
    return repr(shorten(node)) if show else "text"


def _listed(names: Collection[str], what: str) -> str:
    if not names:
        return "it takes no fields" if what == "accepted here" else "nothing is accepted"
    shown = sorted(names)[:_MOST_NAMES]
    rest = len(names) - len(shown)
    return f"{what}: {', '.join(shown)}" + (f" and {rest} more" if rest else "")
