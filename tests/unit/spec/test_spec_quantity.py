# SPDX-License-Identifier: Apache-2.0
"""Quantities are exact, ordered by value, written as read, and bounded."""

from __future__ import annotations

import copy
import pickle
from fractions import Fraction

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from launcher.spec.quantity import MAX_VALUE, Quantity

SUFFIXES = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 10**3),
    "": Fraction(1),
    "k": Fraction(10**3),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "T": Fraction(10**12),
    "P": Fraction(10**15),
    "E": Fraction(10**18),
    "Ki": Fraction(1024),
    "Mi": Fraction(1024**2),
    "Gi": Fraction(1024**3),
    "Ti": Fraction(1024**4),
    "Pi": Fraction(1024**5),
    "Ei": Fraction(1024**6),
}


@pytest.mark.parametrize(("suffix", "factor"), SUFFIXES.items())
def test_every_suffix_has_its_exact_factor(suffix: str, factor: Fraction) -> None:
    assert Quantity(f"3{suffix}").value == 3 * factor
    assert Quantity(f"-2.5{suffix}").value == Fraction(-5, 2) * factor


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1.5Gi", Fraction(3 * 2**29)),
        ("0.1", Fraction(1, 10)),
        (".5", Fraction(1, 2)),
        ("5.", Fraction(5)),
        ("+7", Fraction(7)),
        ("007", Fraction(7)),
        ("1e3", Fraction(1000)),
        ("1E3", Fraction(1000)),
        ("12e-3", Fraction(12, 1000)),
        ("1E", Fraction(10**18)),
        ("1.25e+2", Fraction(125)),
        ("0.0000000001", Fraction(1, 10**10)),
        ("9223372036854775807", Fraction(2**63 - 1)),
        (1024, Fraction(1024)),
        (-1, Fraction(-1)),
    ],
)
def test_reads(text: str | int, value: Fraction) -> None:
    quantity = Quantity(text)
    assert quantity.value == value
    assert str(quantity) == str(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "1 Gi",
        " 1",
        "1\n",
        "Gi",
        ".",
        "-",
        "1.2.3",
        "0x10",
        "1e",
        "1e1.5",
        "1gi",
        "1K",
        "ten",
        "1Gi1",
        "١",
    ],
)
def test_refuses_other_texts_and_says_what_is_accepted(text: str) -> None:
    with pytest.raises(ValueError, match=r"accepted"):
        Quantity(text)


@pytest.mark.parametrize(
    ("text", "meant"), [("1GB", "G"), ("1GiB", "Gi"), ("1gi", "Gi"), ("1K", "k"), ("2 Mi", "Mi")]
)
def test_names_the_suffix_that_was_meant(text: str, meant: str) -> None:
    with pytest.raises(ValueError, match=f"did you mean '{meant}'"):
        Quantity(text)


@pytest.mark.parametrize(
    "text", ["1e999999999", "1e-999999999", "9" * 100, "9" * 5000, "1e19", "8Ei", "-8Ei", 2**63, -(2**64)]
)
def test_refuses_absurd_sizes_without_computing_them(text: str | int) -> None:
    with pytest.raises(ValueError, match=r"accepted"):
        Quantity(text)


@pytest.mark.parametrize("value", [True, False, None, 1.5, b"1", [], {}])
def test_refuses_other_types(value: object) -> None:
    with pytest.raises(ValueError, match="expected a quantity"):
        Quantity(value)  # type: ignore[arg-type]


def test_equality_and_hash_follow_the_value() -> None:
    assert Quantity("1Gi") == Quantity("1024Mi")
    assert Quantity("1Gi").text != Quantity("1024Mi").text
    assert hash(Quantity("1Gi")) == hash(Quantity("1024Mi"))
    assert Quantity("1500m") == Fraction(3, 2)
    assert Quantity("2k") == 2000
    assert Quantity("1") != "1"
    assert not Quantity("0")


def test_rounds_only_where_it_is_asked_to() -> None:
    assert Quantity("1500m").bytes_floor() == 1
    assert Quantity("1500m").ceil() == 2
    assert Quantity("1.0001").milli_ceil() == 1001
    assert Quantity("-1500m").bytes_floor() == -2
    assert Quantity("1.5Ki").is_integer
    assert not Quantity("1500m").is_integer


def test_is_immutable_and_copies() -> None:
    quantity = Quantity("1.5Gi")
    with pytest.raises(AttributeError, match="immutable"):
        quantity.text = "2Gi"
    with pytest.raises(AttributeError, match="immutable"):
        del quantity.value
    for twin in (copy.deepcopy(quantity), pickle.loads(pickle.dumps(quantity))):
        assert (twin.text, twin.value) == (quantity.text, quantity.value)


texts = st.builds(
    lambda sign, whole, decimals, suffix: (sign + whole + decimals, suffix),
    st.sampled_from(["", "+", "-"]),
    st.integers(0, 10**6).map(str),
    st.one_of(st.just(""), st.from_regex(r"\.[0-9]{0,9}", fullmatch=True)),
    st.sampled_from(sorted(SUFFIXES)),
)


@given(texts)
def test_property_value_is_number_times_factor_and_text_is_kept(parts: tuple[str, str]) -> None:
    number, suffix = parts
    value = Fraction(number.removesuffix(".")) * SUFFIXES[suffix]
    assume(abs(value) <= MAX_VALUE)
    quantity = Quantity(number + suffix)
    assert quantity.value == value
    assert quantity.text == number + suffix
    again = Quantity(str(quantity))
    assert again == quantity
    assert again.text == quantity.text


@given(texts, texts)
def test_property_order_is_the_order_of_fractions(left: tuple[str, str], right: tuple[str, str]) -> None:
    values = [Fraction(n.removesuffix(".")) * SUFFIXES[s] for n, s in (left, right)]
    assume(all(abs(v) <= MAX_VALUE for v in values))
    a, b = Quantity("".join(left)), Quantity("".join(right))
    assert (a < b, a <= b, a > b, a >= b, a == b) == (
        values[0] < values[1],
        values[0] <= values[1],
        values[0] > values[1],
        values[0] >= values[1],
        values[0] == values[1],
    )


@given(st.text(max_size=80))
def test_property_any_text_parses_or_raises_value_error(text: str) -> None:
    message = "accepted"
    try:
        written = Quantity(text).text
    except ValueError as error:
        written, message = text, str(error)
    assert written == text
    assert "accepted" in message
