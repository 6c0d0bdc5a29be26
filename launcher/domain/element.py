# SPDX-License-Identifier: Apache-2.0
"""Build and print XML elements through lxml only; text is never pasted together. Pure."""

from __future__ import annotations

import re
from typing import TypeAlias

from lxml import etree

from launcher.errors import InvalidSpec, Violation

# Everything that is not a Char of XML 1.0 (section 2.2), plus DEL and the C1 controls.
_FORBIDDEN = re.compile("[^\t\n\r -~\u00a0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

Element: TypeAlias = etree._Element
Attribute = str | int | None
Child = Element | str | int | None


def E(tag: str, *children: Child, **attributes: Attribute) -> Element:  # noqa: N802 - reads as the element it makes
    """Build one element; None children and None attributes vanish.

    ``E("target", dev="vda", bus="virtio")``; a str or int child is the element's text; an attribute whose
    name is a Python keyword takes a trailing underscore; ``True`` and ``False`` become ``yes`` and ``no``.

    Raises:
        InvalidSpec: a text holds characters that cannot stand in XML.
    """
    node = etree.Element(tag)
    for name, value in attributes.items():
        if value is not None:
            node.set(name.rstrip("_"), text(value, where=f"{tag}@{name}"))
    for child in children:
        if child is None:
            continue
        if isinstance(child, str | int):
            node.text = text(child, where=tag)
        else:
            node.append(child)
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


def text(value: str | int, *, where: str) -> str:
    """Text that may stand in XML.

    Raises:
        InvalidSpec: it holds control characters or half characters.
    """
    if isinstance(value, bool):
        return yes_no(value)
    if isinstance(value, int):
        return str(value)
    found = _FORBIDDEN.search(value)
    if found is not None:
        raise InvalidSpec([_violation(value, found, where)])
    return value


def to_text(root: Element) -> str:
    """Print a document: indented by two blanks, newline at the end, always the same bytes."""
    etree.indent(root, "  ")
    return etree.tostring(root, encoding="unicode") + "\n"


def _violation(value: str, found: re.Match[str], where: str) -> Violation:
    shown = value[:40].encode("ascii", "backslashreplace").decode()
    return Violation(
        field="spec",
        type="FieldValueInvalid",
        value=shown,
        message=f"the character U+{ord(found.group()):04X} at {found.start()} cannot stand in <{where}>; "
        "use printable characters",
    )
