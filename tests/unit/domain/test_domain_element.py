# SPDX-License-Identifier: Apache-2.0
"""Nothing but text can come out of text, and what is written is what lxml would write."""

from __future__ import annotations

from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from launcher.domain.element import E, Element, to_text
from launcher.domain.reading import grafted, parse, printed
from launcher.errors import Bug, InvalidSpec

# A tag, attributes, and a text or a list of elements like itself.
Tree: TypeAlias = "tuple[str, dict[str, str | int], str | list[Tree]]"

# What both writers take and write alike: no control characters; line ends are tested on their own.
PRINTABLE: st.SearchStrategy[str] = st.characters(codec="utf-8", exclude_categories=["C"])
CHARACTERS = PRINTABLE | st.sampled_from("<>&'\"]")
NAMES = st.sampled_from(("disk", "driver", "hint-dedicated", "logFile", "_x", "a.b"))
ATTRIBUTES = st.dictionaries(NAMES, st.text(CHARACTERS) | st.integers(), max_size=3)
# Texts that are not only blanks: parsers tell those from indentation by guessing.
TEXTS = st.text(CHARACTERS).map(lambda text: f"{text}.")
TREES: st.SearchStrategy[Tree] = st.recursive(
    st.tuples(NAMES, ATTRIBUTES, TEXTS),
    lambda below: st.tuples(NAMES, ATTRIBUTES, st.lists(below, max_size=3)),
    max_leaves=12,
)


def ours(tree: Tree) -> Element:
    tag, attributes, content = tree
    children = [content] if isinstance(content, str) else [ours(child) for child in content]
    return E(tag, *children, **attributes)


def of_lxml(tree: Tree) -> etree._Element:
    tag, attributes, content = tree
    node = etree.Element(tag, {name: str(value) for name, value in attributes.items()})
    if isinstance(content, str):
        node.text = content
    else:
        node.extend(of_lxml(child) for child in content)
    return node


def indented(root: etree._Element) -> str:
    etree.indent(root, "  ")
    return etree.tostring(root, encoding="unicode") + "\n"


@given(tree=TREES)
def test_a_document_is_written_as_lxml_writes_it(tree: Tree) -> None:
    assert to_text(ours(tree)) == indented(of_lxml(tree))


@given(tree=TREES)
def test_a_written_element_is_the_same_in_a_parsed_tree(tree: Tree) -> None:
    around = parse("<domain/>", what="test", tag="domain")
    around.append(grafted(ours(tree)))
    assert printed(around) == to_text(E("domain", ours(tree)))


def test_absent_parts_vanish_and_booleans_are_words() -> None:
    node = E(
        "disk", None, E("readonly"), type="file", snapshot=None, shareable=True, transient=False, index=3
    )
    assert node.xml == '<disk type="file" shareable="yes" transient="no" index="3">\n  <readonly/>\n</disk>'


def test_an_empty_text_is_not_an_absent_one() -> None:
    assert E("serial", "").xml == "<serial></serial>"
    assert E("serial", None).xml == "<serial/>"


@given(value=st.text(), attribute=st.text())
def test_any_text_comes_back_or_is_refused(value: str, attribute: str) -> None:
    try:
        text = to_text(E("a", E("b", value, c=attribute)))
    except InvalidSpec:
        return
    node = etree.fromstring(text)[0]
    assert len(node) == 0
    assert (node.text or "") == value
    assert node.items() == [("c", attribute)]


@pytest.mark.parametrize("text", ["one\ntwo", "one\r\ntwo", "\n", "\t", "\r", " "])
def test_line_ends_and_blanks_survive_any_depth(text: str) -> None:
    node = etree.fromstring(to_text(E("a", E("b", E("c", text, d=text)))))[0][0]
    assert node.text == text
    assert node.get("d") == text


@pytest.mark.parametrize(
    "text", ["a\x00b", "\x1b[31m", "\ud800", "\ufffe", "\x7f", "\x85", "é\x85", "\u0080"]
)
def test_what_xml_should_not_hold_is_refused_where_it_stands(text: str) -> None:
    with pytest.raises(InvalidSpec, match="cannot stand in <name>"):
        E("name", text)
    with pytest.raises(InvalidSpec, match="cannot stand in <alias@name>"):
        E("alias", name=text)


def test_a_parsed_tree_is_refused_for_what_xml_should_not_hold() -> None:
    with pytest.raises(InvalidSpec, match=r"U\+0085 cannot stand in <domain>"):
        printed(parse("<domain><name>a&#133;</name></domain>", what="test", tag="domain"))


@pytest.mark.parametrize("name", ["not a name", "a b=", "a>", 'a"', "", "1a", "a:b:c", "-"])
def test_a_wrong_name_is_our_own_fault(name: str) -> None:
    with pytest.raises(Bug, match="cannot be built"):
        E(name)
    with pytest.raises(Bug, match="cannot be built"):
        _with_attribute(name)


def test_a_text_beside_elements_is_our_own_fault() -> None:
    with pytest.raises(Bug, match="something beside it"):
        E("a", "text", E("b"))
    with pytest.raises(Bug, match="something beside it"):
        E("a", E("b"), "text")


def _with_attribute(name: str) -> Element:
    attributes: dict[str, str | int | None] = {name: "x"}
    return E("a", **attributes)
