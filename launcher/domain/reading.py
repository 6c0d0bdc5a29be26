# SPDX-License-Identifier: Apache-2.0
"""Parse XML, safely where it comes from outside: no entities, no network, no huge trees. Pure."""

from __future__ import annotations

from typing import TypeAlias

from lxml import etree

from launcher.domain.element import Element, printable, to_text
from launcher.errors import InvalidRequest, Violation

# An element that was read: a node of a tree that may be changed.
Parsed: TypeAlias = etree._Element


def parse(text: str, *, what: str, tag: str) -> Parsed:
    """The root element of ``text``; ``what`` names the document in errors, ``tag`` is its root.

    Raises:
        InvalidRequest: it is no well-formed document with that root.
    """
    parser = etree.XMLParser(resolve_entities=False, no_network=True, remove_comments=True, remove_pis=True)
    try:
        root = etree.fromstring(text.encode(), parser)
    except (etree.XMLSyntaxError, UnicodeEncodeError, ValueError) as error:
        raise _invalid(what, f"no well-formed XML: {error}") from error
    if root.tag != tag:
        raise _invalid(what, f"the document is <{root.tag}>, <{tag}> is expected")
    return root


def attribute(node: Parsed, path: str, name: str) -> str:
    """Attribute ``name`` of the first element at ``path`` under ``node``; empty when there is none."""
    found = node.find(path)
    return (found.get(name) or "") if found is not None else ""


def words(node: Parsed, path: str) -> str:
    """Text of the first element at ``path``; empty when there is none."""
    return (node.findtext(path) or "").strip()


def grafted(element: Element) -> Parsed:
    """An element of ours as a node that can be put into a tree that was parsed."""
    return etree.fromstring(to_text(element), etree.XMLParser(remove_blank_text=True))


def printed(root: Parsed) -> str:
    """Print a tree as ``to_text`` prints an element.

    Raises:
        InvalidSpec: it holds characters that libxml2 lets pass and libvirt should not see.
    """
    etree.indent(root, "  ")
    return printable(etree.tostring(root, encoding="unicode"), where=str(root.tag)) + "\n"


def _invalid(what: str, message: str) -> InvalidRequest:
    return InvalidRequest([Violation(field=what, type="FieldValueInvalid", message=message)])
