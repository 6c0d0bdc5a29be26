# SPDX-License-Identifier: Apache-2.0
"""Struct and back."""

from __future__ import annotations

from typing import Any

from google.protobuf.struct_pb2 import Struct
from hypothesis import given
from hypothesis import strategies as st

from launcher.rpc.struct import EXACT, from_plain, to_plain

LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(min_value=-EXACT, max_value=EXACT)
    | st.floats(allow_nan=False, allow_infinity=False).filter(lambda f: not f.is_integer())
    | st.text()
)
OBJECTS = st.dictionaries(
    st.text(),
    st.recursive(LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20),
)


def types(value: Any) -> Any:
    """The types in a JSON value: True == 1 == 1.0 hides them."""
    if isinstance(value, dict):
        return {key: types(item) for key, item in value.items()}
    return [types(item) for item in value] if isinstance(value, list) else type(value)


@given(OBJECTS)
def test_round_trip_keeps_values_and_types(value: dict[str, Any]) -> None:
    back = to_plain(Struct.FromString(from_plain(value).SerializeToString()))
    assert back == value
    assert types(back) == types(value)


def test_integral_numbers_become_integers_and_huge_ones_do_not() -> None:
    struct = Struct()
    struct.update({"cores": 2.0, "half": 0.5, "huge": 1e300})
    plain = to_plain(struct)
    assert plain == {"cores": 2, "half": 0.5, "huge": 1e300}
    assert types(plain) == {"cores": int, "half": float, "huge": float}


def test_integers_that_a_double_cannot_hold_become_text() -> None:
    assert to_plain(from_plain({"n": EXACT + 1, "m": -EXACT})) == {"n": str(EXACT + 1), "m": -EXACT}
