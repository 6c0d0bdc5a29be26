# SPDX-License-Identifier: Apache-2.0
"""The examples, loaded and ready to be measured, once each. Decides nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from launcher.explain.corpus import EXAMPLES, manifest_text
from launcher.explain.declared import covers
from launcher.explain.effect import Base, Effect, measure
from launcher.explain.example_host import example_host
from launcher.explain.manifest import Place, places, plain
from launcher.explain.schema import spec_of
from launcher.explain.variants import violations_at
from launcher.spec.load import load_vmi
from launcher.spec.model import VirtualMachineInstance


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One example: its name, the manifest, its places, and the base that its effects are measured against."""

    name: str
    vmi: VirtualMachineInstance
    base: Base
    places: tuple[Place, ...]
    valid: bool

    def at(self, path: str) -> Iterator[Place]:
        """The places of the field ``path`` and of all fields below it."""
        for place in self.places:
            if place.field is not None and covers(path, place.field.path):
                yield place

    def effect(self, place: Place) -> Effect:
        """What a place of a valid example decides. One that can only be there or not, as ``virtiofs: {}``,
        does what the item around it does."""
        effect = self.base.effect(place)
        if effect.outcome != "needed" or place.value != {}:
            return effect
        around = (other for other in self.places if other.path == place.path[:-1])
        return next((self.base.effect(other) for other in around), effect)

    def refusal(self, place: Place) -> str:
        """What the rules say against the place, in a manifest that is an example of it; usually nothing."""
        found = violations_at(self.base.data, place, self.base.settings)
        return found[0].message if found else ""


@cache
def example(name: str) -> Example:
    """The example ``name``."""
    vmi = load_vmi(manifest_text(name))
    data = plain(vmi)
    base = measure(data, example_host(vmi))
    return Example(
        name=name,
        vmi=vmi,
        base=base,
        valid=base.valid(data) is not None,
        places=tuple(places(data, spec_of())),
    )


def examples() -> Iterator[Example]:
    """All examples."""
    return (example(name) for name in EXAMPLES)
