# SPDX-License-Identifier: Apache-2.0
"""What the examples show of each field: where it goes in the XML, what a node prepares by it. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from launcher.explain.document import EXISTS, TEXT, Difference, Document
from launcher.explain.effect import Effect
from launcher.explain.examples import examples

# Parts of a plan that are no action: what nobody provides, and what is only said.
_NO_ACTION = ("devices.unbound", "notes")
# Where devices sit changes with each of them; worth a word only where nothing else changes.
_ADDRESS = "/address"
_PORTS = ("devices/controller", "devices/controller/target")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What was seen of one field.

    ``xml`` are paths below ``<domain>`` (``devices/disk/target/@bus``), the most frequent first; ``plan``
    parts of the plan (``steps.CreateImage.size``). ``refusal`` is what the rules say when it is used at all.
    """

    xml: tuple[str, ...] = ()
    plan: tuple[str, ...] = ()
    refusal: str = ""
    samples: int = 0


def measured(path: str) -> Mapping[str, Measured]:
    """What the examples show of the field ``path`` and of all below it, by path."""
    xml: defaultdict[str, Counter[str]] = defaultdict(Counter)
    plan: defaultdict[str, set[str]] = defaultdict(set)
    refusals: dict[str, str] = {}
    samples: Counter[str] = Counter()
    for example in examples():
        for place in example.at(path):
            if place.field is None:
                continue
            name = place.field.path
            samples[name] += 1
            if not example.valid:
                refusals.setdefault(name, example.refusal(place))
                continue
            refusals[name] = ""
            effect = example.effect(place)
            xml[name].update(xml_paths(effect.difference, example.base.document))
            plan[name].update(actions(effect))
    return {
        name: Measured(
            xml=tuple(path for path, _ in xml[name].most_common()),
            plan=tuple(sorted(plan[name])),
            refusal=refusals.get(name, ""),
            samples=count,
        )
        for name, count in samples.items()
    }


def actions(effect: Effect) -> Iterator[str]:
    """The parts of the plan, outside of the XML, that an effect changes and that something is done by."""
    return (part for part in effect.plan if not part.startswith(_NO_ACTION))


def xml_paths(difference: Difference, document: Document) -> tuple[str, ...]:
    """The paths that differ: whole elements where they come or go, else attributes and texts."""
    whole = {number for number, part in difference.atoms if part == EXISTS}
    found = dict.fromkeys(sorted(difference.added))
    for number, part in sorted(difference.atoms):
        if part == EXISTS and not _inside(number, whole, document):
            found[document.path(number)] = None
        elif number not in whole:
            found[document.path(number) + ("" if part == TEXT else f"/{part}")] = None
    telling = [path for path in found if not _is_incidental(path)]
    return tuple(telling or sorted(found, key=lambda path: path in _PORTS))


def _inside(number: int, whole: set[int], document: Document) -> bool:
    """Whether an element around it comes or goes as a whole, too."""
    parent = document.parent(number)
    return parent in whole


def _is_incidental(path: str) -> bool:
    return path.endswith(_ADDRESS) or f"{_ADDRESS}/@" in path or path in _PORTS
