# SPDX-License-Identifier: Apache-2.0
"""Where each part of one domain comes from: fields, defaults, settings, facts of the host. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from launcher.explain.absent import absent_differences
from launcher.explain.declared import Disposition, declaration
from launcher.explain.defaulted import Filled, filled
from launcher.explain.document import EXISTS, Atom, Difference, Document
from launcher.explain.effect import Base, Effect, measure
from launcher.explain.influences import default_differences, node_differences
from launcher.explain.manifest import Place, places, plain
from launcher.explain.measured import actions
from launcher.explain.schema import spec_of
from launcher.explain.translation import Translator
from launcher.plan.devices.model import Unbound
from launcher.spec.model import VirtualMachineInstance

# What changes this many times as much as the most telling source is not worth naming beside it.
_FACTOR: Final = 8
_MOST_SOURCES: Final = 3
_MOST_DEFAULTS: Final = 2
_MOST_ABSENT: Final = 2

_PROVIDED: Final = {
    "claim": "place of a claim",
    "device": "device of the resource",
    "vf": "virtual function for the interface",
    "binding": "binding plugin",
}


class Kind(IntEnum):
    """What a source is; the first kinds are the most telling."""

    FIELD = 0
    OBJECT = 1
    DEFAULT = 2
    ABSENT = 3
    NODE = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Something that parts of the document depend on, with the number of those parts."""

    kind: Kind
    label: str
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Silent:
    """A field of the manifest that does not show in the domain, and what becomes of it."""

    path: str
    disposition: Disposition | None
    reason: str

    @property
    def acts(self) -> bool:
        """Whether the agent does something by it all the same."""
        return self.disposition is Disposition.ENFORCED


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """One domain explained.

    ``sources`` are those of each part, the most telling first; each element has one, while an attribute or
    text without any is as constant as its element. ``left_out`` says which elements are missing, and because
    of what.
    """

    document: Document
    sources: dict[Atom, tuple[Source, ...]]
    left_out: tuple[tuple[str, str], ...]
    silent: tuple[Silent, ...]
    defaults: tuple[Filled, ...]


def provenance(vmi: VirtualMachineInstance, translator: Translator) -> Provenance:
    """Explain a valid manifest, whose defaults may be missing.

    Raises:
        LauncherError: it cannot be translated.
    """
    data = plain(vmi)
    base = measure(data, translator)
    effects = [base.effect(place) for place in places(data, spec_of())]
    found: defaultdict[Atom, list[Source]] = defaultdict(list)
    for kind, label, difference in _differences(effects):
        _note(found, kind, label, difference)
    for label, difference in default_differences(vmi, base):
        _note(found, Kind.DEFAULT, label, difference)
    for label, difference in absent_differences(base):
        _note(found, Kind.ABSENT, label, difference)
    for label, difference in node_differences(vmi, base):
        _note(found, Kind.NODE, label, difference)
    return Provenance(
        document=base.document,
        sources=_sources(found, base),
        left_out=tuple(_left_out(effects)),
        silent=tuple(_silent(effects, base.translation.plan.devices.unbound)),
        defaults=tuple(filled(data, base.settings)),
    )


def _sources(found: dict[Atom, list[Source]], base: Base) -> dict[Atom, tuple[Source, ...]]:
    """The sources of each part; an element that nothing changed is one that all guests of its kind have."""
    architecture = base.data["spec"].get("architecture") or base.settings.architecture
    common = (Source(kind=Kind.NODE, label=f"every {architecture} guest", size=0),)
    placement = base.document.is_placement
    sources = {
        atom: _placed(noted) if placement(atom[0]) else _telling(noted, atom[1])
        for atom, noted in found.items()
    }
    for atom in base.document.atoms():
        if atom[1] == EXISTS and atom not in sources:
            sources[atom] = _placed([]) if placement(atom[0]) else common
    return sources


def _differences(effects: list[Effect]) -> Iterator[tuple[Kind, str, Difference]]:
    for effect in effects:
        kind = Kind.FIELD if effect.place.leaf else Kind.OBJECT
        yield kind, effect.place.shown, effect.difference


def _note(found: defaultdict[Atom, list[Source]], kind: Kind, label: str, difference: Difference) -> None:
    source = Source(kind=kind, label=label, size=len(difference.atoms))
    for atom in difference.atoms:
        found[atom].append(source)


def _telling(sources: list[Source], part: str) -> tuple[Source, ...]:
    """Fields, or else the smallest object around them, and defaults beside; the node if nothing else.

    An absent switch is why an element exists at all; of its parts, the node says more.
    """
    fields = _smallest(sources, Kind.FIELD) or _smallest(sources, Kind.OBJECT)[:1]
    defaults = _smallest(sources, Kind.DEFAULT)
    if fields and defaults and defaults[0].size > _FACTOR * fields[0].size:
        defaults = []
    chosen = (*fields[:_MOST_SOURCES], *defaults[:_MOST_DEFAULTS])
    if chosen:
        return chosen
    absent, node = _smallest(sources, Kind.ABSENT), _smallest(sources, Kind.NODE)
    if part == EXISTS or not node:
        return (*absent[:_MOST_ABSENT], *node)[:_MOST_SOURCES]
    return tuple(node[:_MOST_SOURCES])


def _placed(sources: list[Source]) -> tuple[Source, ...]:
    """Every device moves those after it; only an address that was asked for is worth naming."""
    asked = tuple(source for source in sources if source.label.endswith("pciAddress"))
    return asked or (Source(kind=Kind.NODE, label="placement on PCI", size=0),)


def _smallest(sources: list[Source], kind: Kind) -> list[Source]:
    mine = sorted((source for source in sources if source.kind is kind), key=lambda source: source.size)
    return [source for source in mine if source.size <= _FACTOR * mine[0].size]


def _left_out(effects: list[Effect]) -> Iterator[tuple[str, str]]:
    """Elements that would be there without a field. What only moves is no news, and so not named."""
    for effect in effects:
        if effect.place.leaf and not effect.difference.atoms:
            for path in sorted(effect.difference.added):
                yield path, effect.place.shown


def _silent(effects: list[Effect], unbound: tuple[Unbound, ...]) -> Iterator[Silent]:
    shown = [effect.place.path for effect in effects if effect.outcome == "xml"]
    for effect in effects:
        place = effect.place
        if not place.leaf or place.path[0] != "spec" or effect.outcome == "xml":
            continue
        if effect.outcome == "needed" and place.value == {} and place.path[:-1] in shown:
            continue
        yield _without_trace(place, effect, unbound)


def _without_trace(place: Place, effect: Effect, unbound: tuple[Unbound, ...]) -> Silent:
    acts = tuple(sorted(actions(effect)))
    if acts:
        return Silent(
            path=place.shown, disposition=Disposition.ENFORCED, reason=f"the node prepares {', '.join(acts)}"
        )
    declared = declaration(place.field) if place.field is not None else None
    if declared is not None:
        return Silent(path=place.shown, disposition=declared.disposition, reason=declared.line)
    missing = next((item for item in unbound if place.shown.startswith(f"{item.field}.")), None)
    if missing is not None:
        reason = f"no {_PROVIDED[missing.kind]} {missing.name!r} was assumed here"
        return Silent(path=place.shown, disposition=None, reason=reason)
    if effect.outcome == "needed":
        return Silent(path=place.shown, disposition=None, reason="other fields need it as it is")
    return Silent(path=place.shown, disposition=None, reason="the domain is the same without it")
