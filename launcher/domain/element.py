# SPDX-License-Identifier: Apache-2.0
"""Write XML elements, so that nothing but text can come out of text. Parses and changes none. Pure.

This is the one place where XML is put together by hand. lxml could do it, but making and printing its trees
took two thirds of the time of a whole translation, about three times of what this takes; the tests hold both
to the same output. Reading XML, and changing what others wrote, is lxml's work (``launcher.domain.reading``).
"""

from __future__ import annotations

import re
from typing import Final, TypeAlias

import msgspec

from launcher.errors import Bug, InvalidSpec, Violation

# What is plain needs no second look: printable ASCII without the characters that XML gives a meaning.
_special: Final = re.compile("[^ !#-%'-;=?-~]").search
# Everything that is not a Char of XML 1.0 (section 2.2), plus DEL and the C1 controls.
_FORBIDDEN: Final = re.compile("[^\t\n\r -~\u00a0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
# A Name of XML 1.0 in ASCII, with the prefix of a namespace or without one.
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*(?::[A-Za-z_][A-Za-z0-9_.-]*)?")
# Line ends are written as references in texts too (section 4.1): so they survive, and a line of the
# document is never a part of a text.
_REFERENCES: Final = str.maketrans(
    {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "\t": "&#9;", "\n": "&#10;", "\r": "&#13;"}
)
_IN_TEXT: Final = {code: new for code, new in _REFERENCES.items() if chr(code) not in '"\t'}


class Element(msgspec.Struct, frozen=True, gc=False):
    """One element with all that is in it, as indented text. Only ``E`` makes them."""

    xml: str


Attribute: TypeAlias = str | int | None
Child: TypeAlias = Element | str | int | None


class _Names(dict[str, str]):
    """Names that were found right; each leads to the beginning of an attribute of that name."""

    def __missing__(self, name: str) -> str:
        if _NAME.fullmatch(name) is None:
            raise Bug(f"<{name}> cannot be built")
        self[name] = beginning = f' {name}="'
        return beginning


# Names come from this program, not from manifests, so there are few.
_NAMES: Final = _Names()


def E(tag: str, *children: Child, **attributes: Attribute) -> Element:  # noqa: N802 - reads as the element it makes
    """Build one element; None children and None attributes vanish.

    ``E("target", dev="vda", bus="virtio")``; a str or int child is the element's text, and then its only
    child; ``True`` and ``False`` become ``yes`` and ``no``.

    Raises:
        InvalidSpec: a text holds characters that cannot stand in XML.
    """
    # Building a domain spends its time here: no calls and no copies for what is plain.
    _NAMES[tag]
    head = tag
    for name, value in attributes.items():
        if type(value) is str:
            if _special(value) is not None:
                value = _escaped(value, f"{tag}@{name}", _REFERENCES)
        elif value is None:
            continue
        elif type(value) is not int:
            value = _word(value)
        head = f'{head}{_NAMES[name]}{value}"'
    below = ""
    for child in children:
        if type(child) is Element:
            below += "\n" + child.xml
        elif child is not None:
            return _with_text(tag, head, children)
    if not below:
        return Element(f"<{head}/>")
    below = below.replace("\n", "\n  ")
    return Element(f"<{head}>{below}\n</{tag}>")


def on_off(value: bool) -> str:
    """libvirt's virTristateSwitch."""
    return "on" if value else "off"


def yes_no(value: bool) -> str:
    """libvirt's virTristateBool."""
    return "yes" if value else "no"


def cpu_list(cpus: tuple[int, ...]) -> str:
    """A comma list as libvirt reads it: ``cpu_list((0, 1, 4)) == '0,1,4'``."""
    return ",".join(map(str, cpus))


def to_text(root: Element) -> str:
    """Print a document: indented by two blanks, newline at the end, always the same bytes."""
    return root.xml + "\n"


def printable(text: str, *, where: str) -> str:
    """``text``, if all of it may stand in XML; ``where`` names the element or attribute it is for.

    Raises:
        InvalidSpec: it holds control characters or half characters.
    """
    found = _FORBIDDEN.search(text)
    if found is None:
        return text
    start = max(0, found.start() - 30)
    shown = text[start : start + 40].encode("ascii", "backslashreplace").decode()
    message = f"the character U+{ord(found.group()):04X} cannot stand in <{where}>; use printable characters"
    raise InvalidSpec([Violation(field="spec", type="FieldValueInvalid", value=shown, message=message)])


def _with_text(tag: str, head: str, children: tuple[Child, ...]) -> Element:
    given = children if len(children) == 1 else [child for child in children if child is not None]
    only = given[0]
    if len(given) != 1 or only is None or isinstance(only, Element):
        raise Bug(f"<{tag}> cannot be built: it has a text and something beside it")
    text = only if type(only) is str else _word(only)
    if _special(text) is not None:
        text = _escaped(text, tag, _IN_TEXT)
    return Element(f"<{head}>{text}</{tag}>")


def _word(value: str | int) -> str:
    return yes_no(value) if isinstance(value, bool) else str(value)


def _escaped(value: str, where: str, references: dict[int, str]) -> str:
    return printable(value, where=where).translate(references)
