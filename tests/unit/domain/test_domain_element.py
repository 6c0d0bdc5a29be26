# SPDX-License-Identifier: Apache-2.0
"""Nothing but text can come out of text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from launcher.domain.element import E, to_text
from launcher.errors import Bug, InvalidSpec


def test_absent_parts_vanish_and_booleans_are_words() -> None:
    node = E("disk", None, E("readonly"), type="file", snapshot=None, shareable=True, index=3)
    assert etree.tostring(node) == b'<disk type="file" shareable="yes" index="3"><readonly/></disk>'


@given(value=st.text(), attribute=st.text())
def test_any_text_comes_back_or_is_refused(value: str, attribute: str) -> None:
    try:
        printed = to_text(E("a", E("b", value, c=attribute)))
    except InvalidSpec:
        return
    node = etree.fromstring(printed)[0]
    assert len(node) == 0
    assert (node.text or "") == value.replace("\r\n", "\n") or "\r" in value
    assert node.get("c") == attribute


@pytest.mark.parametrize("text", ["a\x00b", "\x1b[31m", "\ud800", "\ufffe"])
def test_what_xml_cannot_hold_is_refused_where_it_stands(text: str) -> None:
    with pytest.raises(InvalidSpec, match="cannot stand in <name>"):
        E("name", text)
    with pytest.raises(InvalidSpec, match="cannot stand in <alias@name>"):
        E("alias", name=text)


@pytest.mark.parametrize("text", ["\x7f", "\x85", "é\x85", "\u0080"])
def test_other_control_characters_are_refused_in_the_document(text: str) -> None:
    with pytest.raises(InvalidSpec, match=r"U\+00[0-9A-F]{2} cannot stand in <domain>"):
        to_text(E("name", text))


def test_a_wrong_name_is_our_own_fault() -> None:
    with pytest.raises(Bug, match="<not a name> cannot be built"):
        E("not a name")
