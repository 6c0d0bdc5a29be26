# SPDX-License-Identifier: Apache-2.0
"""google.protobuf.Struct <-> plain JSON values. Pure. A Struct knows only doubles; integers are restored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from google.protobuf.struct_pb2 import ListValue, Struct, Value

EXACT = 2**53
"""Doubles hold every integer up to here (IEEE 754); a larger one has lost digits on the way."""

_INT64 = 2**63


def to_plain(struct: Struct) -> dict[str, Any]:
    """The JSON object in ``struct``; integral numbers become ``int``."""
    return {key: _plain(value) for key, value in struct.fields.items()}


def _plain(value: Value) -> Any:
    match value.WhichOneof("kind"):
        case "number_value":
            number = value.number_value
            return int(number) if number.is_integer() and abs(number) <= _INT64 else number
        case "string_value":
            return value.string_value
        case "bool_value":
            return value.bool_value
        case "struct_value":
            return to_plain(value.struct_value)
        case "list_value":
            return [_plain(item) for item in value.list_value.values]
        case _:
            return None


def from_plain(value: Mapping[str, Any]) -> Struct:
    """A Struct of a JSON object. Integers beyond 2**53 become strings, as protobuf's JSON does with int64."""
    return Struct(fields={key: _value(item) for key, item in value.items()})


def _value(item: Any) -> Value:
    match item:
        case None:
            return Value(null_value=0)  # type: ignore[arg-type]  # the enum has this one value
        case bool():
            return Value(bool_value=item)
        case int():
            return Value(number_value=item) if abs(item) <= EXACT else Value(string_value=str(item))
        case float():
            return Value(number_value=item)
        case str():
            return Value(string_value=item)
        case Mapping():
            return Value(struct_value=from_plain(item))
        case Sequence():
            return Value(list_value=ListValue(values=[_value(part) for part in item]))
        case _:
            raise TypeError(f"{type(item).__name__} has no place in JSON")
