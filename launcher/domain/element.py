# SPDX-License-Identifier: Apache-2.0
"""Build and print XML elements through lxml only; text is never pasted together. Pure."""

from __future__ import annotations

import re
from typing import TypeAlias

from lxml import etree

from launcher.errors import Bug, InvalidSpec, Violation

# Everything that is not a Char of XML 1.0 (section 2.2), plus DEL and the C1 controls.
_FORBIDDEN = re.compile("[^\t\n\r -~\u00a0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_PLAIN = b"\t\n\r" + bytes(range(0x20, 0x7F))

Element: TypeAlias = etree._Element
Attribute = str | int | None
Child = Element | str | int | None


def E(tag: str, *children: Child, **attributes: Attribute) -> Element:  # noqa: N802 - reads as the element it makes
    """Build one element; None children and None attributes vanish.

    ``E("target", dev="vda", bus="virtio")``; a str or int child is the element's text; ``True`` and
    ``False`` become ``yes`` and ``no``.

    Raises:
        InvalidSpec: a text holds characters that cannot stand in XML.
    """
    try:
        # type() and no function call for texts: this is where building a domain spends its time.
        node = etree.Element(
            tag,
            {
                name: value if type(value) is str else _word(value)
                for name, value in attributes.items()
                if value is not None
            },
        )
        for child in children:
            if child is None:
                continue
            if isinstance(child, str | int):
                node.text = _word(child)
            else:
                node.append(child)
    except ValueError as error:
        raise _refusal(tag, children, attributes) from error
    return node


def on_off(value: bool) -> str:
    """libvirt's virTristateSwitch."""
    return "on" if value else "off"


def yes_no(value: bool) -> str:
    """libvirt's virTristateBool."""
    return "yes" if value else "no"


def cpu_list(cpus: tuple[int, ...]) -> str:
    """A comma list as libvirt reads it: ``cpu_list((0, 1, 4)) == '0,1,4'``."""
    return ",".join(map(str, cpus))


def text(value: str, *, where: str) -> str:
    """``value``, if it may stand in the element ``where``.

    Raises:
        InvalidSpec: it holds control characters or half characters.
    """
    found = _FORBIDDEN.search(value)
    if found is not None:
        raise InvalidSpec([_violation(value, found, where)])
    return value


def to_text(root: Element) -> str:
    """Print a document: indented by two blanks, newline at the end, always the same bytes.

    Raises:
        InvalidSpec: it holds characters that libxml2 lets pass and libvirt should not see.
    """
    etree.indent(root, "  ")
    printed = etree.tostring(root, encoding="unicode")
    found = None if _is_plain(printed) else _FORBIDDEN.search(printed)
    if found is not None:
        start = max(0, found.start() - 40)
        raise InvalidSpec([_violation(printed[start : found.end()], found, "domain")])
    return printed + "\n"


def _is_plain(printed: str) -> bool:
    """Whether the text is ASCII without controls: true of almost every document, and quick to tell."""
    return printed.isascii() and not printed.encode().translate(None, _PLAIN)


def _word(value: str | int) -> str:
    if isinstance(value, bool):
        return yes_no(value)
    return str(value)


def _refusal(tag: str, children: tuple[Child, ...], attributes: dict[str, Attribute]) -> InvalidSpec | Bug:
    """What was wrong with the texts of an element that lxml refused."""
    places = [(f"{tag}@{name}", value) for name, value in attributes.items()]
    places += [(tag, child) for child in children if isinstance(child, str)]
    for where, value in places:
        found = _FORBIDDEN.search(value) if isinstance(value, str) else None
        if found is not None and isinstance(value, str):
            return InvalidSpec([_violation(value, found, where)])
    return Bug(f"<{tag}> cannot be built")


def _violation(value: str, found: re.Match[str], where: str) -> Violation:
    shown = value[:40].encode("ascii", "backslashreplace").decode()
    return Violation(
        field="spec",
        type="FieldValueInvalid",
        value=shown,
        message=f"the character U+{ord(found.group()):04X} cannot stand in <{where}>; "
        "use printable characters",
    )
