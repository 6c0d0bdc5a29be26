# SPDX-License-Identifier: Apache-2.0
"""Kubernetes resource quantities, exact: integers and fractions, never floats.

The grammar and the suffixes are those of the Kubernetes API (``resource.Quantity``): a signed decimal
number followed by one of ``n u m k M G T P E`` (powers of 1000), ``Ki Mi Gi Ti Pi Ei`` (powers of
1024) or an exponent such as ``e3``. Where Kubernetes silently caps what is larger than 2^63 - 1 and
rounds what is finer than one billionth, this module refuses the former and keeps the latter exact.
"""

from __future__ import annotations

import math
import re
from fractions import Fraction
from functools import lru_cache
from typing import NoReturn

ACCEPTED = (
    "a number with an optional suffix: n, u, m, k, M, G, T, P, E (powers of 1000), "
    "Ki, Mi, Gi, Ti, Pi, Ei (powers of 1024) or an exponent like e3"
)

# The largest magnitude a Kubernetes quantity can have (resource.maxAllowed).
MAX_VALUE = 2**63 - 1
# Bounds on the work of parsing: enough for every number up to MAX_VALUE with nano precision, spelled out.
_MAX_TEXT = 64
_MAX_EXPONENT = 30

_NUMBER = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?(.*)", re.DOTALL)
_EXPONENT = re.compile(r"[eE]([+-]?[0-9]+)")

_FACTORS: dict[str, Fraction] = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "": Fraction(1),
    "k": Fraction(10**3),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "T": Fraction(10**12),
    "P": Fraction(10**15),
    "E": Fraction(10**18),
    "Ki": Fraction(2**10),
    "Mi": Fraction(2**20),
    "Gi": Fraction(2**30),
    "Ti": Fraction(2**40),
    "Pi": Fraction(2**50),
    "Ei": Fraction(2**60),
}


class Quantity:
    """A non-rounded amount such as ``2Gi``, ``1500m`` or ``3``; immutable.

    ``text`` is what the user wrote and what is written out again; ``value`` its exact size in base
    units (bytes, CPUs). Equality, ordering and hash follow ``value``, so ``Quantity("1Gi")`` equals
    ``Quantity("1024Mi")``; integers and fractions compare too.

    Raises ``ValueError``, with a message that says what is accepted, for any other text.
    """

    __slots__ = ("_rank", "text", "value")
    text: str
    value: Fraction
    _rank: int | Fraction  # the value as what compares fastest

    def __init__(self, text: str | int) -> None:
        if isinstance(text, bool) or not isinstance(text, str | int):
            raise ValueError(f"expected a quantity: {ACCEPTED}")
        if isinstance(text, int):
            value = _in_range(Fraction(text))
            written = str(text)
        else:
            value = _value(text)
            written = text
        object.__setattr__(self, "text", written)
        object.__setattr__(self, "value", value)
        whole = value.denominator == 1
        object.__setattr__(self, "_rank", value.numerator if whole else value)

    @property
    def is_integer(self) -> bool:
        """Whether the amount is a whole number of base units."""
        return self.value.denominator == 1

    def bytes_floor(self) -> int:
        """Whole base units (bytes), rounded down: a fraction of a byte is not given."""
        return math.floor(self.value)

    def ceil(self) -> int:
        """Whole base units, rounded up: ``Quantity("1500m").ceil() == 2``."""
        return math.ceil(self.value)

    def milli_ceil(self) -> int:
        """Whole thousandths of a base unit, rounded up: ``Quantity("1.5").milli_ceil() == 1500``."""
        return math.ceil(self.value * 1000)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError("a Quantity is immutable")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError("a Quantity is immutable")

    def __reduce__(self) -> tuple[type[Quantity], tuple[str]]:
        return Quantity, (self.text,)

    def __repr__(self) -> str:
        return f"Quantity({self.text!r})"

    def __str__(self) -> str:
        return self.text

    def __hash__(self) -> int:
        return hash(self._rank)

    def __bool__(self) -> bool:
        return bool(self._rank)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Quantity):
            return self._rank == other._rank
        if isinstance(other, int | Fraction):
            return self._rank == other
        return NotImplemented

    def __lt__(self, other: Quantity | int | Fraction) -> bool:
        return self._rank < _rank_of(other)

    def __le__(self, other: Quantity | int | Fraction) -> bool:
        return self._rank <= _rank_of(other)

    def __gt__(self, other: Quantity | int | Fraction) -> bool:
        return self._rank > _rank_of(other)

    def __ge__(self, other: Quantity | int | Fraction) -> bool:
        return self._rank >= _rank_of(other)


def _rank_of(other: Quantity | int | Fraction) -> int | Fraction:
    return other._rank if isinstance(other, Quantity) else other


# The same few amounts stand in most manifests.
@lru_cache(maxsize=4096)
def _value(text: str) -> Fraction:
    return _in_range(_parse(text))


def _in_range(value: Fraction) -> Fraction:
    if abs(value) > MAX_VALUE:
        raise ValueError("the quantity is out of range: accepted are magnitudes up to 2^63 - 1")
    return value


def _parse(text: str) -> Fraction:
    if len(text) > _MAX_TEXT:
        raise ValueError(f"the quantity is too long: accepted are up to {_MAX_TEXT} characters")
    match = _NUMBER.fullmatch(text)
    assert match is not None, "every part of the pattern is optional"
    sign, whole, decimals, suffix = match[1], match[2], match[3] or "", match[4]
    if not whole and not decimals:
        raise ValueError(f"not a quantity; accepted is {ACCEPTED}")
    number = Fraction(int((whole + decimals) or "0"), 10 ** len(decimals))
    return (-number if sign == "-" else number) * _factor(suffix)


def _factor(suffix: str) -> Fraction:
    factor = _FACTORS.get(suffix)
    if factor is not None:
        return factor
    exponent = _EXPONENT.fullmatch(suffix)
    if exponent is None:
        raise ValueError(f"not a quantity; accepted is {ACCEPTED}{_suffix_hint(suffix)}")
    power = int(exponent[1])
    if abs(power) > _MAX_EXPONENT:
        raise ValueError(
            f"the exponent of the quantity is out of range: accepted are -{_MAX_EXPONENT} to {_MAX_EXPONENT}"
        )
    return Fraction(10**power) if power >= 0 else Fraction(1, 10**-power)


def _suffix_hint(suffix: str) -> str:
    """Name the suffix that was probably meant: ``GB`` is ``G``, ``gi`` and ``GiB`` are ``Gi``."""
    wanted = suffix.strip().removesuffix("B").removesuffix("b").lower()
    if not wanted:
        return ""
    for known in _FACTORS:
        if known.lower() == wanted and known not in ("m", "n", "u"):
            return f"; did you mean {known!r}?"
    return ""
