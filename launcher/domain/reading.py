# SPDX-License-Identifier: Apache-2.0
"""Parse XML that comes from outside, safely: no entities, no network, no huge trees. Pure."""

from __future__ import annotations

from lxml import etree

from launcher.domain.element import Element
from launcher.errors import InvalidRequest, Violation


def parse(text: str, *, what: str, tag: str) -> Element:
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


def attribute(node: Element, path: str, name: str) -> str:
    """Attribute ``name`` of the first element at ``path`` under ``node``; empty when there is none."""
    found = node.find(path)
    return (found.get(name) or "") if found is not None else ""


def words(node: Element, path: str) -> str:
    """Text of the first element at ``path``; empty when there is none."""
    return (node.findtext(path) or "").strip()


def _invalid(what: str, message: str) -> InvalidRequest:
    return InvalidRequest([Violation(field=what, type="FieldValueInvalid", message=message)])
