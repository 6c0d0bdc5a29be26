# SPDX-License-Identifier: Apache-2.0
"""One manifest on one assumed node: planned, written down, and its differences from another. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import msgspec
from msgspec import structs

from launcher.domain.build import build
from launcher.domain.translate import Assumptions, stand_ins
from launcher.plan.allocations import Allocations
from launcher.plan.arch import ARCHITECTURES
from launcher.plan.make import make_plan
from launcher.plan.model import VMPlan
from launcher.spec.defaults import apply_defaults
from launcher.spec.model import VirtualMachineInstance

Allocate: TypeAlias = Callable[[VirtualMachineInstance, Assumptions], Allocations]


@dataclass(frozen=True, slots=True, kw_only=True)
class Translation:
    """A plan and its XML."""

    plan: VMPlan
    xml: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Translator:
    """Translates on the node of ``assumed``; ``allocate`` hands out what an agent would."""

    assumed: Assumptions
    allocate: Allocate

    def translate(self, vmi: VirtualMachineInstance) -> Translation:
        """Translate a valid manifest, whose defaults may be missing.

        Raises:
            LauncherError: it cannot be planned or written down.
        """
        return self.complete(apply_defaults(vmi, self.assumed.defaults))

    def complete(self, full: VirtualMachineInstance) -> Translation:
        """Translate a defaulted manifest.

        Raises:
            LauncherError: it cannot be planned or written down.
        """
        facts, asked = self.assumed.facts, full.spec.architecture
        if asked in ARCHITECTURES and asked != facts.arch and not facts.guests:
            # A node of which it is not known what it runs is one that runs what is asked for.
            facts = structs.replace(facts, arch=asked)
        allocations = self.allocate(full, self.assumed)
        plan = make_plan(full, facts, allocations, self.assumed.settings)
        return Translation(plan=plan, xml=build(plan))

    def on(self, assumed: Assumptions) -> Translator:
        """The same on another node."""
        return replace(self, assumed=assumed)


def node_translator(vmi: VirtualMachineInstance, assumed: Assumptions) -> Translator:
    """Translates ``vmi`` and what is made of it by changes: all of them are the instance of one uid."""
    uid = stand_ins(vmi, assumed).uid

    def allocate(other: VirtualMachineInstance, assumed: Assumptions) -> Allocations:
        return structs.replace(stand_ins(other, assumed), uid=uid)

    return Translator(assumed=assumed, allocate=allocate)


def plan_differences(before: VMPlan, after: VMPlan) -> frozenset[str]:
    """Where two plans differ: ``steps.CreateImage.size``, ``lifecycle.paused``."""
    return frozenset(_differences("", _data(before), _data(after)))


def _data(plan: VMPlan) -> dict[str, Any]:
    data: dict[str, Any] = msgspec.to_builtins(plan)
    return data


def _differences(path: str, before: Any, after: Any) -> Iterator[str]:
    if before == after:
        return
    if isinstance(before, dict) and isinstance(after, dict):
        for key in {**before, **after}:
            if key not in before or key not in after:
                yield f"{path}{key}"
            else:
                yield from _differences(f"{path}{key}.", before[key], after[key])
    elif isinstance(before, list | tuple) and isinstance(after, list | tuple):
        yield from _lists(path, before, after)
    else:
        yield path.removesuffix(".")


def _lists(path: str, before: Any, after: Any) -> Iterator[str]:
    """Items by what names them; those without a name by their position."""
    left, right = _keyed(before), _keyed(after)
    for key in {**left, **right}:
        kind = key[0] if isinstance(key, tuple) else ""
        below = f"{path}{kind}." if kind else path
        if key not in left or key not in right:
            yield below.removesuffix(".")
        else:
            yield from _differences(below, left[key], right[key])


def _keyed(items: Any) -> dict[Any, Any]:
    keyed = {}
    for index, item in enumerate(items):
        key: Any = index
        if isinstance(item, dict):
            kind = item.get("step", "")
            name = item.get("volume") or item.get("name") or item.get("network") or item.get("path")
            key = (kind, name, 0) if name or kind else index
            while key in keyed:
                key = (key[0], key[1], key[2] + 1) if isinstance(key, tuple) else index
        keyed[key] = item
    return keyed
