# SPDX-License-Identifier: Apache-2.0
"""A domain document whose parts are numbered, and what of it differs in another one. Knows no libvirt rules.

Parts ("atoms") are the existence of an element, each of its attributes, and its text. Elements of the same
tag are matched by equality first, then by what names them, then by order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

from lxml import etree

from launcher.domain.reading import Parsed

# The number of an element in document order, and "" (it exists), "@name" (an attribute) or "text".
Atom: TypeAlias = tuple[int, str]
EXISTS: Final = ""
TEXT: Final = "text"

# Attributes by which an element is recognised among its like.
_NAMES: Final = ("name", "vcpu", "iothread", "id", "cellid", "cell", "index", "dev", "type")
_PARSER: Final = etree.XMLParser(remove_blank_text=True, resolve_entities=False, no_network=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """What of a document differs: its own atoms, and the paths of elements that only the other one has."""

    atoms: frozenset[Atom] = frozenset()
    added: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.atoms or self.added)


NO_DIFFERENCE: Final = Difference()


class Document:
    """A parsed domain; the elements keep their numbers as long as it lives."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.root = etree.fromstring(text, _PARSER)
        self.elements: tuple[Parsed, ...] = tuple(self.root.iter(etree.Element))
        self._number = {element: number for number, element in enumerate(self.elements)}
        self._texts = {element: etree.tostring(element) for element in self.elements}

    def atoms(self) -> Iterator[Atom]:
        """All parts, in the order of the document."""
        for number, element in enumerate(self.elements):
            yield from _atoms(number, element)

    def path(self, number: int) -> str:
        """Tags from below ``<domain>`` to the element: ``devices/disk/target``."""
        return element_path(self.elements[number])

    def parent(self, number: int) -> int | None:
        """The number of the element around an element."""
        parent = self.elements[number].getparent()
        return None if parent is None else self._number[parent]

    def is_placement(self, number: int) -> bool:
        """Whether the element says where a device sits on PCI: an address, a root port, or part of one."""
        element = self.elements[number]
        parent = element.getparent()
        port = next(
            (node for node in (element, parent) if node is not None and node.tag == "controller"), None
        )
        if port is not None and port.get("type") == "pci":
            return True
        return (
            element.tag == "address"
            and element.get("type") == "pci"
            and parent is not None
            and parent.tag != "source"
        )

    def against(self, text: str) -> Difference:
        """What differs in the document ``text``."""
        if text == self.text:
            return Difference()
        atoms: set[Atom] = set()
        added: set[str] = set()
        self._compare(self.root, etree.fromstring(text, _PARSER), atoms, added)
        return Difference(atoms=frozenset(atoms), added=frozenset(added))

    def _compare(self, mine: Parsed, other: Parsed, atoms: set[Atom], added: set[str]) -> None:
        number = self._number[mine]
        for name in {*mine.attrib, *other.attrib}:
            if mine.get(name) != other.get(name):
                if name in mine.attrib:
                    atoms.add((number, f"@{name}"))
                else:
                    added.add(f"{element_path(mine)}/@{name}")
        if (mine.text or "") != (other.text or ""):
            atoms.add((number, TEXT))
        tags = dict.fromkeys(child.tag for child in (*mine, *other))
        for tag in tags:
            self._match(mine.findall(tag), other.findall(tag), atoms, added)

    def _match(self, mine: list[Parsed], others: list[Parsed], atoms: set[Atom], added: set[str]) -> None:
        if len(mine) == len(others) == 1:
            self._compare(mine[0], others[0], atoms, added)
            return
        left, right = _unequal(mine, others, self._texts)
        for one, other in _paired(left, right):
            if other is None:
                for element in one.iter(etree.Element):
                    atoms.update(_atoms(self._number[element], element))
            else:
                self._compare(one, other, atoms, added)
        added.update(element_path(element) for element in right)


def element_path(element: Parsed) -> str:
    """Tags from below ``<domain>`` to the element."""
    tags = [_local(element), *(_local(parent) for parent in element.iterancestors())]
    return "/".join(reversed(tags[:-1])) or tags[0]


def _local(element: Parsed) -> str:
    return etree.QName(element).localname


def _atoms(number: int, element: Parsed) -> Iterator[Atom]:
    yield number, EXISTS
    for name in map(str, element.attrib):
        yield number, f"@{name}"
    if (element.text or "").strip():
        yield number, TEXT


def _unequal(
    mine: list[Parsed], others: list[Parsed], texts: dict[Parsed, bytes]
) -> tuple[list[Parsed], list[Parsed]]:
    """What is left on both sides when equal ones are taken away."""
    right = [(etree.tostring(element), element) for element in others]
    left = []
    for element in mine:
        same = next((pair for pair in right if pair[0] == texts[element]), None)
        if same is None:
            left.append(element)
        else:
            right.remove(same)
    return left, [element for _, element in right]


def _paired(left: list[Parsed], right: list[Parsed]) -> Iterable[tuple[Parsed, Parsed | None]]:
    """Pairs by name, then by order; ``right`` keeps what has no partner."""
    rest = []
    for element in left:
        name = _name(element)
        partner = next((other for other in right if name and _name(other) == name), None)
        if partner is None:
            rest.append(element)
        else:
            right.remove(partner)
            yield element, partner
    for element in rest:
        yield element, (right.pop(0) if right and not _name(element) else None)


def _name(element: Parsed) -> str:
    """What tells an element from others of its tag; empty: nothing."""
    alias = element.find("alias")
    if alias is not None:
        return f"alias {alias.get('name', '')}"
    for name in _NAMES:
        if name in element.attrib:
            return " ".join((name, element.get(name, ""), element.get("type", "")))
    target = element.find("target")
    return f"target {target.get('dev')}" if target is not None else ""
