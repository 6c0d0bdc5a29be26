# SPDX-License-Identifier: Apache-2.0
"""How the text of a scalar is read where the field wants a boolean, an integer, or anything.

The rules are those of YAML 1.1, which kubectl's users know, but applied only where the field wants
such a value. Quoted text is never a boolean or a number.
"""

from __future__ import annotations

import math
import re
from typing import Final

from launcher.spec.nodes import BOOLEAN, NUMBER, PLAIN, Scalar

# https://yaml.org/type/bool.html
_TRUE: Final = frozenset(("true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON", "y", "Y"))
_FALSE: Final = frozenset(("false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF", "n", "N"))
# https://yaml.org/type/int.html, without base 60; 0o is YAML 1.2's octal.
_INTEGER: Final = re.compile(
    r"(?P<sign>[-+]?)(?:0b(?P<bin>[01_]+)|0x(?P<hex>[0-9a-fA-F_]+)|0o?(?P<oct>[0-7_]+)|(?P<dec>0|[1-9][0-9_]*))"
)
_BASES: Final = {"bin": 2, "hex": 16, "oct": 8, "dec": 10}
# Longer than every integer of 64 bits in every base: not worth converting.
_LONGEST_INTEGER: Final = 70
_FLOAT: Final = re.compile(r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?")


def boolean(node: Scalar) -> bool | None:
    """The boolean that the scalar means, None if it means none."""
    if node.kind not in (PLAIN, BOOLEAN):
        return None
    if node.text in _TRUE:
        return True
    return False if node.text in _FALSE else None


def integer(node: Scalar) -> int | None:
    """The integer that the scalar means, None if it means none. ``0644`` is octal, as for kubectl."""
    if node.kind not in (PLAIN, NUMBER) or len(node.text) > _LONGEST_INTEGER:
        return None
    match = _INTEGER.fullmatch(node.text)
    if match is None or match.lastgroup is None:
        return None
    digits = match[match.lastgroup].replace("_", "")
    if not digits:
        return None
    number = int(digits, _BASES[match.lastgroup])
    return -number if match["sign"] == "-" else number


def anything(node: Scalar) -> bool | int | float | str | None:
    """The scalar in a field without a schema, by its looks. Null has been dealt with before.

    None means a number that is not finite.
    """
    if node.kind in (PLAIN, BOOLEAN) and (flag := boolean(node)) is not None and len(node.text) > 1:
        return flag
    if (number := integer(node)) is not None:
        return number
    if node.kind == NUMBER or (node.kind == PLAIN and _FLOAT.fullmatch(node.text)):
        return _finite(node.text)
    return None if node.kind == PLAIN and node.text.lower().lstrip("+-") in (".inf", ".nan") else node.text


def _finite(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
