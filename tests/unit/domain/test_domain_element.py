# SPDX-License-Identifier: Apache-2.0
"""Nothing but text can come out of text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from launcher.domain.element import E, to_text
from launcher.errors import InvalidSpec


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


@pytest.mark.parametrize("text", ["a\x00b", "\x1b[31m", "\x7f", "\x85", "\ud800", "\ufffe"])
def test_control_and_half_characters_are_refused(text: str) -> None:
    with pytest.raises(InvalidSpec, match="cannot stand in <name>"):
        E("name", text)
    with pytest.raises(InvalidSpec, match="cannot stand in <alias@name>"):
        E("alias", name=text)
