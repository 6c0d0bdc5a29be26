# SPDX-License-Identifier: Apache-2.0
"""Which rules look at which fields: they are run on manifests that write down what is read. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar, cast

from msgspec.structs import fields

from launcher.explain.examples import examples
from launcher.spec.defaults import DefaultsSettings, apply_defaults
from launcher.spec.model import VirtualMachineInstance
from launcher.spec.model.base import Model
from launcher.spec.rules import RULES
from launcher.spec.rules.context import Rule, context

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RuleName:
    """A rule: where it stands, and what it says of itself."""

    name: str
    summary: str


@cache
def readers() -> Mapping[str, tuple[RuleName, ...]]:
    """The rules that read a field in any of the examples, by the field's path."""
    found: defaultdict[str, dict[RuleName, None]] = defaultdict(dict)
    for example in examples():
        for rule, paths in _reads(example.vmi, example.base.settings):
            for path in paths:
                found[path][_name(rule)] = None
    return {path: tuple(rules) for path, rules in found.items()}


def _reads(vmi: VirtualMachineInstance, settings: DefaultsSettings) -> Iterator[tuple[Rule, frozenset[str]]]:
    seen: set[str] = set()
    written, full = _watched(vmi, "", seen), _watched(apply_defaults(vmi, settings), "", seen)
    ctx = context(written, full, settings, creating=False)
    for rule in RULES:
        seen.clear()
        for _ in rule(ctx):
            pass
        yield rule, frozenset(seen)


def _name(rule: Rule) -> RuleName:
    module = rule.__module__.rpartition(".")[2]
    return RuleName(f"{module}.{rule.__name__}", (rule.__doc__ or "").partition("\n")[0])


def _watched(value: T, path: str, seen: set[str]) -> T:
    """A copy of an object of the model that adds the path of each field that is read to ``seen``.

    Items of lists are watched, too. It is an object of a class of its own below the model's, as rules ask
    for classes; what reads all fields at once (``asdict``) is not noticed.
    """
    if isinstance(value, tuple):
        items: Any = tuple(_watched(item, f"{path}[]", seen) for item in value)
        return cast("T", items)
    if not isinstance(value, Model):
        return value
    model = type(value)
    paths = {field.name: f"{path}.{field.encode_name}".lstrip(".") for field in fields(model)}

    def read(self: Model, name: str) -> Any:
        if name in paths:
            seen.add(paths[name])
        return object.__getattribute__(self, name)

    make_class: Any = type(model)
    watching = make_class(model.__name__, (model,), {"__getattribute__": read, "__module__": __name__})
    copied = {name: _watched(getattr(value, name), below, seen) for name, below in paths.items()}
    return cast("T", watching(**copied))
