# SPDX-License-Identifier: Apache-2.0
"""Reads a document by the types of the model and finds everything in it that does not fit. Builds no model.

``read_as`` turns nodes into the plain data that msgspec then converts: each scalar is read by the type
of its field, nulls are dropped (in Kubernetes null means absent), and what does not fit becomes a
finding instead of a value. The types come from ``msgspec.inspect``, once for each class.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, Final, TypeAlias

from msgspec import inspect as mi

from launcher.errors import Bug
from launcher.spec import notation
from launcher.spec.findings import DUPLICATE, INVALID, REQUIRED, Findings, forbidden_character
from launcher.spec.nodes import BOOLEAN, NULL, NUMBER, PLAIN, TEXT, Mapping, Node, Scalar, Sequence, is_null
from launcher.spec.path import FieldPath
from launcher.spec.quantity import Quantity


class _Absent:
    """The type of ``ABSENT``: there is no value, or none that could be read."""


ABSENT: Final = _Absent()

# Reads a node that is not null into plain data, or adds findings and returns ABSENT.
Reader: TypeAlias = Callable[[Node, FieldPath, Findings], Any]


def read_as(kind: type, node: Node, path: FieldPath, findings: Findings) -> Any:
    """Read ``node`` as ``kind`` (a class of the model) into plain data with the keys of the API.

    All that does not fit is added to ``findings``; the result is then incomplete, or ``ABSENT``.
    """
    return _struct_reader(kind)(node, path, findings)


def _entries(
    node: Mapping, path: FieldPath, findings: Findings, *, fields: bool = False
) -> Iterator[tuple[Scalar, Node]]:
    """The keys and values of a map, without the keys that none may have. ``fields``: of an object."""
    seen: dict[str, Scalar] = {}
    for key, value in zip(node.items[::2], node.items[1::2], strict=True):
        if type(key) is not Scalar:
            findings.wrong_type(path, key, "text as a key")
        elif key.text in seen:
            first = seen[key.text]
            where = f", first in line {first.line}" if first.line else ""
            here = path / key.text if fields else path[key.text]
            findings.add(here, DUPLICATE, f"the key is given twice{where}", key, show=False)
        elif _is_good_key(key, path, findings):
            seen[key.text] = key
            yield key, value


def _is_good_key(key: Scalar, path: FieldPath, findings: Findings) -> bool:
    if is_null(key) or key.kind not in (PLAIN, TEXT):
        findings.wrong_type(path, key, "text as a key")
    elif key.kind == PLAIN and key.text == "<<":
        message = "merge keys are not supported; write the fields out"
        findings.add(path[key.text], INVALID, message, key, show=False)
    elif bad := forbidden_character(key.text):
        findings.add(path, INVALID, f"a key contains the control character {bad}", key, show=False)
    else:
        return True
    return False


class _Struct:
    """Reads an object with named fields."""

    def __init__(self, kind: mi.StructType) -> None:
        self._fields = {
            field.encode_name: ("." + field.encode_name, _reader(field.type)) for field in kind.fields
        }
        self._required = {field.encode_name: field.type for field in kind.fields if field.required}

    def __call__(self, node: Node, path: FieldPath, findings: Findings) -> Any:
        if type(node) is not Mapping:
            findings.wrong_type(path, node, "an object")
            return ABSENT
        result: dict[str, Any] = {}
        given = set()
        for key, value in _entries(node, path, findings, fields=True):
            field = self._fields.get(key.text)
            if field is None:
                findings.unknown(path, key, self._fields)
            elif not is_null(value):
                given.add(key.text)
                segment, read = field
                content = read(value, FieldPath(path, segment), findings)
                if content is not ABSENT:
                    result[key.text] = content
        for name, kind in self._required.items():
            if name not in given:
                findings.add(path / name, REQUIRED, "the field is required", node, show=False)
            if name not in result:
                result[name] = _stopgap(kind)
                findings.nameless |= name == "name" or isinstance(kind, mi.StructType)
        return result


class _List:
    """Reads a list whose items are all of one type."""

    def __init__(self, item: mi.Type) -> None:
        self._read = _reader(item)
        self._item = item

    def __call__(self, node: Node, path: FieldPath, findings: Findings) -> Any:
        if type(node) is not Sequence:
            findings.wrong_type(path, node, "a list")
            return ABSENT
        result = []
        for index, item in enumerate(node.items):
            here = FieldPath(path, f"[{index}]")
            content: Any = ABSENT
            if is_null(item):
                findings.wrong_type(here, item, "a value; an item of a list cannot be absent")
            else:
                content = self._read(item, here, findings)
            if content is ABSENT:
                findings.unread_object |= isinstance(self._item, mi.StructType)
                content = _stopgap(self._item)
            result.append(content)
        return result


class _Map:
    """Reads a map with free keys."""

    def __init__(self, value: mi.Type) -> None:
        self._read = _reader(value)
        self._amounts = self._read is _read_quantity

    def __call__(self, node: Node, path: FieldPath, findings: Findings) -> Any:
        if type(node) is not Mapping:
            findings.wrong_type(path, node, "a map")
            return ABSENT
        result = {}
        for key, value in _entries(node, path, findings):
            if not is_null(value):
                here = path.amount(key.text) if self._amounts else path[key.text]
                content = self._read(value, here, findings)
                if content is not ABSENT:
                    result[key.text] = content
        return result


def _read_text(node: Node, path: FieldPath, findings: Findings) -> Any:
    if type(node) is not Scalar or node.kind in (NUMBER, BOOLEAN, NULL):
        hint = "; put it in quotes" if type(node) is Scalar else ""
        findings.wrong_type(path, node, "text", hint)
        return ABSENT
    return _printable(node, path, findings)


def _printable(node: Scalar, path: FieldPath, findings: Findings) -> Any:
    if bad := forbidden_character(node.text):
        findings.add(path, INVALID, f"the text contains the control character {bad}", node)
        return ABSENT
    return node.text


def _quoted(node: Node, read: Callable[[Scalar], object]) -> str:
    """What to add where only the quotes are too much."""
    if type(node) is Scalar and node.kind == TEXT and read(Scalar(node.text, PLAIN)) is not None:
        return "; write it without quotes"
    return ""


def _read_boolean(node: Node, path: FieldPath, findings: Findings) -> Any:
    flag = notation.boolean(node) if type(node) is Scalar else None
    if flag is None:
        findings.wrong_type(path, node, "true or false", _quoted(node, notation.boolean))
        return ABSENT
    return flag


class _Integer:
    """Reads an integer within bounds."""

    def __init__(self, low: int | None, high: int | None) -> None:
        self._low = -(2**63) if low is None else low
        self._high = 2**63 - 1 if high is None else high

    def __call__(self, node: Node, path: FieldPath, findings: Findings) -> Any:
        number = notation.integer(node) if type(node) is Scalar else None
        if number is None:
            findings.wrong_type(path, node, "a whole number", _quoted(node, notation.integer))
            return ABSENT
        if not self._low <= number <= self._high:
            message = f"out of range; accepted are {self._low} to {self._high}"
            findings.add(path, INVALID, message, node)
            return ABSENT
        return number


def _read_integer_or_text(node: Node, path: FieldPath, findings: Findings) -> Any:
    if type(node) is not Scalar or node.kind in (BOOLEAN, NULL):
        findings.wrong_type(path, node, "a whole number or text")
        return ABSENT
    number = notation.integer(node)
    if number is None and node.kind == NUMBER:
        findings.wrong_type(path, node, "a whole number or text")
        return ABSENT
    if number is None:
        return _printable(node, path, findings)
    # Kubernetes keeps the number of an int-or-string in 32 bits.
    return _read_int32(node, path, findings)


_read_int32 = _Integer(-(2**31), 2**31 - 1)


def _read_quantity(node: Node, path: FieldPath, findings: Findings) -> Any:
    if type(node) is not Scalar or node.kind in (BOOLEAN, NULL):
        findings.wrong_type(path, node, "a quantity such as 2Gi, 500m or 3")
        return ABSENT
    try:
        return Quantity(node.text)
    except ValueError as error:
        findings.add(path, INVALID, str(error), node)
        return ABSENT


class _Choice:
    """Reads one of a few texts. In an optional field the empty text means absent, as in Kubernetes."""

    def __init__(self, values: tuple[str, ...], *, optional: bool) -> None:
        self._values = values
        self._optional = optional

    def __call__(self, node: Node, path: FieldPath, findings: Findings) -> Any:
        text = _read_text(node, path, findings)
        if text is ABSENT or text in self._values:
            return text
        if not (self._optional and text == "") and type(node) is Scalar:
            findings.not_supported(path, node, self._values)
        return ABSENT


def _read_anything(node: Node, path: FieldPath, findings: Findings) -> Any:
    if type(node) is Mapping:
        return {
            key.text: _read_anything(value, path[key.text], findings)
            for key, value in _entries(node, path, findings)
        }
    if type(node) is Sequence:
        return [_read_anything(item, path[index], findings) for index, item in enumerate(node.items)]
    if type(node) is not Scalar or is_null(node):
        return None
    content = notation.anything(node)
    if content is None:
        findings.add(path, INVALID, "accepted are finite numbers", node)
        return ABSENT
    return _printable(node, path, findings) if isinstance(content, str) else content


_SIMPLE: Final[dict[type, Reader]] = {
    mi.StrType: _read_text,
    mi.BoolType: _read_boolean,
    mi.AnyType: _read_anything,
}


@cache
def _struct_reader(kind: type) -> Reader:
    """The reader of a whole object. Describing its types takes some 50 ms, so it is done once."""
    return _reader(mi.type_info(kind))


def _stopgap(kind: mi.Type) -> Any:
    """Plain data in place of what is required and could not be read: the least that the type takes.

    It never gets into an object that is accepted, as there is a finding then; the rules judge the rest by it.
    """
    match kind:
        case mi.Metadata():
            return _stopgap(kind.type)
        case mi.UnionType():
            return _stopgap(kind.types[0])
        case mi.StructType():
            return {field.encode_name: _stopgap(field.type) for field in kind.fields if field.required}
        case mi.VarTupleType():
            return []
        case mi.DictType():
            return {}
        case mi.IntType():
            return max(0, kind.ge or 0)
        case mi.LiteralType():
            return kind.values[0]
        case mi.CustomType():
            return Quantity("0")
        case mi.BoolType():
            return False
    return ""


def _reader(kind: mi.Type, *, optional: bool = False) -> Reader:
    """The reader of one type of the model; every type that the model uses has one."""
    if type(kind) in _SIMPLE:
        return _SIMPLE[type(kind)]
    match kind:
        case mi.Metadata():
            return _reader(kind.type, optional=optional)
        case mi.UnionType():
            return _union_reader(kind)
        case mi.StructType():
            return _Struct(kind)
        case mi.VarTupleType():
            return _List(kind.item_type)
        case mi.DictType():
            return _Map(kind.value_type)
        case mi.IntType():
            return _Integer(kind.ge, kind.le)
        case mi.LiteralType():
            return _Choice(tuple(str(value) for value in kind.values), optional=optional)
        case mi.CustomType() if kind.cls is Quantity:
            return _read_quantity
    raise Bug(f"no reader for the type {kind!r}")


def _union_reader(kind: mi.UnionType) -> Reader:
    members = [member for member in kind.types if not isinstance(member, mi.NoneType)]
    if len(members) == 1:
        return _reader(members[0], optional=True)
    if {type(member) for member in members} == {mi.IntType, mi.StrType}:
        return _read_integer_or_text
    raise Bug(f"no reader for the type {kind!r}")
