# SPDX-License-Identifier: Apache-2.0
"""The fields of the API as a tree, read from the model: path, type, meaning. Judges no manifest."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import msgspec.inspect as inspection

from launcher.spec.model import (
    MigrationPolicySpec,
    Quantity,
    VirtualMachineInstanceMigrationSpec,
    VirtualMachineInstanceSpec,
)
from launcher.spec.model.base import Model

Shape = Literal["one", "list", "map"]
Scalar = Literal["", "text", "integer", "integer or text", "boolean", "quantity"]

# The specs that are documented, by the kind of their object.
SPECS: dict[str, type[Model]] = {
    "VirtualMachineInstance": VirtualMachineInstanceSpec,
    "VirtualMachineInstanceMigration": VirtualMachineInstanceMigrationSpec,
    "MigrationPolicy": MigrationPolicySpec,
}

_MEANING = re.compile(r"^ *([a-z_0-9]+): (.+)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One field of the API.

    ``path`` writes items of lists as ``[]``: ``spec.domain.devices.disks[].name``. ``scalar`` says what a
    value (of a list or map: each of its values) is, and is empty for objects, whose API type ``type_name``
    is and whose fields are ``children``. ``enum`` are the values that the schema itself accepts.
    """

    path: str
    name: str
    shape: Shape = "one"
    scalar: Scalar = ""
    type_name: str = ""
    enum: tuple[str, ...] = ()
    bits: int = 0
    required: bool = False
    meaning: str = ""
    children: tuple[Field, ...] = ()

    @property
    def is_leaf(self) -> bool:
        """Whether it has no fields of its own (an object without any counts too)."""
        return not self.children

    @property
    def type_text(self) -> str:
        """The type for people: ``list of Disk``, ``map of text``, ``integer``."""
        one = self.type_name or self.scalar
        return {"one": one, "list": f"list of {one}", "map": f"map of {one}"}[self.shape]

    @property
    def child_prefix(self) -> str:
        """What the paths of its children start with."""
        return f"{self.path}[]" if self.shape == "list" else self.path

    def child(self, name: str) -> Field | None:
        """Its field ``name``."""
        return next((child for child in self.children if child.name == name), None)

    def walk(self) -> Iterator[Field]:
        """Itself and all fields below, in order."""
        yield self
        for child in self.children:
            yield from child.walk()


@cache
def spec_of(kind: str = "VirtualMachineInstance") -> Field:
    """The field ``spec`` of an object of that kind."""
    return _field("spec", "spec", inspection.type_info(SPECS[kind]), required=True, meaning="")


def find(root: Field, path: str) -> Field | None:
    """The field at a path as people write it: ``spec.domain.devices.disks[0].name``, with or without [].

    What follows a map is the key of an entry, which stands for the map.
    """
    parts = _parts(path)
    if not parts or parts[0] != root.name:
        return None
    here = root
    for part in parts[1:]:
        if here.shape == "map":
            return here
        child = here.child(part)
        if child is None:
            return None
        here = child
    return here


def nearest(root: Field, path: str) -> Field:
    """The last field on the way to a path that exists."""
    here = root
    for part in _parts(path)[1:]:
        child = here.child(part)
        if child is None:
            break
        here = child
    return here


def _parts(path: str) -> list[str]:
    return [part for part in re.split(r"\[[^\]]*\]|\.", path) if part]


@cache
def meanings(model: type[Model]) -> dict[str, str]:
    """What the docstring of a class says of its fields: lines ``name: meaning``, continued by indentation."""
    found: dict[str, str] = {}
    last = ""
    for line in (model.__doc__ or "").splitlines():
        match = _MEANING.match(line)
        if match is not None and match[1] in model.__struct_fields__:
            last = match[1]
            found[last] = match[2]
        elif last and line.startswith("        ") and line.strip():
            found[last] += f" {line.strip()}"
        else:
            last = ""
    return found


def _field(path: str, name: str, info: Any, *, required: bool, meaning: str) -> Field:
    """One field; ``info`` is msgspec's description of its type."""
    shape: Shape = "one"
    info = _present(info)
    if isinstance(info, inspection.VarTupleType):
        shape, info = "list", _present(info.item_type)
    elif isinstance(info, inspection.DictType):
        shape, info = "map", _present(info.value_type)
    if isinstance(info, inspection.StructType):
        below = f"{path}[]" if shape == "list" else path
        texts = meanings(info.cls)
        return Field(
            path=path,
            name=name,
            shape=shape,
            type_name=info.cls.__name__,
            required=required,
            meaning=meaning,
            children=tuple(
                _field(
                    f"{below}.{item.encode_name}",
                    item.encode_name,
                    item.type,
                    required=item.required,
                    meaning=texts.get(item.name, ""),
                )
                for item in info.fields
            ),
        )
    return Field(
        path=path,
        name=name,
        shape=shape,
        scalar=_scalar(info),
        enum=tuple(map(str, info.values)) if isinstance(info, inspection.LiteralType) else (),
        bits=_bits(info),
        required=required,
        meaning=meaning,
    )


def _present(info: Any) -> Any:
    """The type without None and without annotations."""
    if isinstance(info, inspection.Metadata):
        return _present(info.type)
    if isinstance(info, inspection.UnionType):
        types = [item for item in info.types if not isinstance(item, inspection.NoneType)]
        if len(types) == 1:
            return _present(types[0])
    return info


def _scalar(info: Any) -> Scalar:
    if isinstance(info, inspection.StrType | inspection.LiteralType):
        return "text"
    if isinstance(info, inspection.IntType):
        return "integer"
    if isinstance(info, inspection.BoolType):
        return "boolean"
    if isinstance(info, inspection.UnionType):
        return "integer or text"
    if isinstance(info, inspection.CustomType) and info.cls is Quantity:
        return "quantity"
    raise TypeError(f"a field of a type that explanations do not know: {info}")


def _bits(info: Any) -> int:
    """32 or 64 for a bounded integer, else 0."""
    return (info.le + 1).bit_length() if isinstance(info, inspection.IntType) and info.le is not None else 0
