# SPDX-License-Identifier: Apache-2.0
"""A manifest as plain data: its places, and the same manifest with one place changed. Judges nothing."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import msgspec

from launcher.explain.schema import Field
from launcher.spec.codec import dec_hook
from launcher.spec.export import to_json
from launcher.spec.model import VirtualMachineInstance

Data: TypeAlias = dict[str, Any]
Path: TypeAlias = tuple[str | int, ...]

_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A value in a manifest: a leaf, or an object or item of a list that holds leaves.

    ``field`` is its field in the API; None for metadata, which is not part of any spec.
    """

    path: Path
    value: Any
    leaf: bool
    field: Field | None = None

    @property
    def shown(self) -> str:
        """The path as findings write it: ``spec.domain.devices.disks[0].name``."""
        return written(self.path)


def written(path: Path) -> str:
    """A path as Kubernetes writes it; keys that are no plain words stand in brackets."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        elif _PLAIN_KEY.fullmatch(part):
            text += f".{part}"
        else:
            text += f"[{part}]"
    return text.removeprefix(".")


def plain(vmi: VirtualMachineInstance) -> Data:
    """The manifest as data, without what says nothing about the guest."""
    data: Data = msgspec.json.decode(to_json(vmi))
    return {key: value for key, value in data.items() if key in ("metadata", "spec", "status")}


def typed(data: Data) -> VirtualMachineInstance:
    """Data as a typed manifest.

    Raises:
        msgspec.ValidationError: a required field is missing or a value has the wrong type.
    """
    return msgspec.convert(data, VirtualMachineInstance, dec_hook=dec_hook)


def places(data: Data, spec: Field) -> Iterator[Place]:
    """All places of metadata and spec, leaves and what holds them, in the order of the manifest."""
    for key, value in data.get("metadata", {}).items():
        yield from _free(("metadata", key), value)
    for key, value in data["spec"].items():
        child = spec.child(key)
        if child is not None:
            yield from _places(("spec", key), value, child)


def without(data: Data, path: Path) -> Data:
    """The manifest without the value at ``path``."""
    changed: Data = _changed(data, path[:-1], lambda holder: _less(holder, path[-1]))
    return changed


def with_value(data: Data, path: Path, value: object) -> Data:
    """The manifest with another value at ``path``."""
    changed: Data = _changed(data, path, lambda _: value)
    return changed


def renamed(data: Data, old: str, new: str, *, items_only: bool) -> Data:
    """The spec with a name changed wherever it stands: as the name of items of lists, or as any text."""
    return data | {"spec": _replaced(data["spec"], old, new, items_only)}


def without_named(data: Data, name: str) -> Data:
    """The spec without any item of a list that has this name: a disk together with its volume."""
    return data | {"spec": _pruned(data["spec"], name)}


def _places(path: Path, value: Any, field: Field) -> Iterator[Place]:
    if field.shape == "list" and isinstance(value, list):
        for index, item in enumerate(value):
            yield from _item((*path, index), item, field)
    elif field.shape == "map" and isinstance(value, dict):
        for key, item in value.items():
            yield Place(path=(*path, key), value=item, leaf=True, field=field)
    else:
        yield from _item(path, value, field)


def _item(path: Path, value: Any, field: Field) -> Iterator[Place]:
    if not isinstance(value, dict) or not value:
        yield Place(path=path, value=value, leaf=True, field=field)
        return
    yield Place(path=path, value=value, leaf=False, field=field)
    for key, inner in value.items():
        child = field.child(key)
        if child is not None:
            yield from _places((*path, key), inner, child)


def _free(path: Path, value: Any) -> Iterator[Place]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _free((*path, key), item)
    elif not isinstance(value, list):
        yield Place(path=path, value=value, leaf=True)


def _changed(value: Any, path: Path, change: Callable[[Any], Any]) -> Any:
    """A copy along the path; what is beside it is shared."""
    if not path:
        return change(value)
    head = path[0]
    if isinstance(value, list) and isinstance(head, int):
        return [*value[:head], _changed(value[head], path[1:], change), *value[head + 1 :]]
    return {**value, head: _changed(value[head], path[1:], change)}


def _less(holder: Any, part: str | int) -> Any:
    if isinstance(holder, list):
        return [item for index, item in enumerate(holder) if index != part]
    return {key: value for key, value in holder.items() if key != part}


def _replaced(value: Any, old: str, new: str, items_only: bool) -> Any:
    if isinstance(value, dict):
        return {key: _replaced(item, old, new, items_only) for key, item in value.items()}
    if isinstance(value, list):
        items = [_replaced(item, old, new, items_only) for item in value]
        return [_with_name(item, old, new) if isinstance(item, dict) else item for item in items]
    return new if value == old and isinstance(value, str) and not items_only else value


def _with_name(item: Data, old: str, new: str) -> Data:
    return item | {"name": new} if item.get("name") == old else item


def _pruned(value: Any, name: str) -> Any:
    if isinstance(value, dict):
        return {key: _pruned(item, name) for key, item in value.items()}
    if isinstance(value, list):
        return [
            _pruned(item, name) for item in value if not (isinstance(item, dict) and item.get("name") == name)
        ]
    return value
