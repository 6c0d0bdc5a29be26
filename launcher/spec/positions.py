# SPDX-License-Identifier: Apache-2.0
"""From field paths back to lines and columns of the manifest's text. Finds nothing wrong itself."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from launcher.errors import Violation
from launcher.spec.json_nodes import read_json
from launcher.spec.nodes import Mapping, Node, Scalar, Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Positions:
    """Where the fields of one object stand in its text.

    ``root`` is the object as it was read. Without it, ``json`` may be the text of the object, which is read
    when a position is asked for; without both, the object did not come from text. ``template`` is set
    when the object was taken out of a VirtualMachine: its fields then stand below ``spec.template``.
    """

    root: Node | None = None
    json: str = ""
    template: bool = False

    def read(self) -> Positions:
        """The same with ``root``, if there is text. Worth it before asking for many positions."""
        if self.root is not None or not self.json:
            return self
        return replace(self, root=read_json(self.json))

    def written(self, field: str) -> str:
        """The path under which the user wrote ``field`` (``spec.template.spec…`` for a VirtualMachine)."""
        if not self.template:
            return field
        below = f"spec.template.{field}"
        if field == "spec" or field.startswith(("spec.", "spec[")):
            return below
        if field.startswith("metadata."):
            root = self.read().root
            if root is not None and _find(root, below)[1] == "":
                return below
        return field

    def locate(self, field: str) -> tuple[int, int] | None:
        """Line and column (from 1) of ``field``, or of its nearest parent that is in the text."""
        root = self.read().root
        if root is None:
            return None
        place, _rest = _find(root, self.written(field))
        return place if place[0] else None


NOWHERE = Positions()


def with_positions(violations: Iterable[Violation], positions: Positions) -> tuple[Violation, ...]:
    """Add line and column to findings that lack them, and name fields as the user wrote them."""
    known = positions.read()
    return tuple(_placed(violation, known) for violation in violations)


def _placed(violation: Violation, positions: Positions) -> Violation:
    if violation.line is not None:
        return violation
    place = positions.locate(violation.field)
    field = positions.written(violation.field)
    if place is None:
        return replace(violation, field=field)
    return replace(violation, field=field, line=place[0], column=place[1])


def _find(root: Node, field: str) -> tuple[tuple[int, int], str]:
    """The place of the deepest part of ``field`` that exists, and what is left of the path there.

    A value that is a map or list is shown by its key, which in block style stands a line earlier.
    """
    node, rest = root, field
    place = (root.line, root.column)
    while rest:
        if isinstance(node, Mapping):
            step = _step_into_mapping(node, rest)
        elif isinstance(node, Sequence):
            step = _step_into_sequence(node, rest)
        else:
            break
        if step is None:
            break
        place, node, rest = step
    return place, rest


def _step_into_mapping(node: Mapping, rest: str) -> tuple[tuple[int, int], Node, str] | None:
    best: tuple[Scalar, Node, str] | None = None
    for key, value in zip(node.items[::2], node.items[1::2], strict=True):
        if not isinstance(key, Scalar):
            continue
        for written in (key.text, f".{key.text}", f"[{key.text}]"):
            left = rest.removeprefix(written)
            # Keys may contain dots, so the longest key that fits is the one that is meant.
            fits = written and left != rest and (not left or left[0] in ".[")
            if fits and (best is None or len(left) < len(best[2])):
                best = (key, value, left)
    if best is None:
        return None
    key, value, left = best
    shown = value if isinstance(value, Scalar) else key
    return (shown.line, shown.column), value, left


def _step_into_sequence(node: Sequence, rest: str) -> tuple[tuple[int, int], Node, str] | None:
    number, bracket, left = rest.removeprefix("[").partition("]")
    if not rest.startswith("[") or not bracket or not (number.isascii() and number.isdigit()):
        return None
    if len(number) > 9 or int(number) >= len(node.items):
        return None
    item = node.items[int(number)]
    return (item.line, item.column), item, left
