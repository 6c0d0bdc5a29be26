# SPDX-License-Identifier: Apache-2.0
"""What one place of a manifest decides: measured by changing it and translating again. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import Literal

import msgspec

from launcher.errors import LauncherError
from launcher.explain.document import NO_DIFFERENCE, Difference, Document
from launcher.explain.manifest import Data, Place, typed
from launcher.explain.translation import Translation, Translator, plan_differences
from launcher.explain.variants import changes, renamings, repair
from launcher.spec.defaults import DefaultsSettings
from launcher.spec.model import VirtualMachineInstance
from launcher.spec.rules import check

# Changes tried at one place: enough for every enumeration of the API, few enough to stay quick.
MOST_CHANGES = 12
MOST_REPAIRS = 3

Outcome = Literal["xml", "plan", "none", "needed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """What a place decides.

    ``outcome`` is ``xml`` (it shows in the domain), ``plan`` (only in what the node prepares: ``plan`` names
    it), ``none`` (nothing changes without it or with another value) or ``needed`` (no manifest without it, or
    with something else there, can be translated).
    """

    place: Place
    outcome: Outcome
    difference: Difference = NO_DIFFERENCE
    plan: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """The manifest that is measured, and its translation."""

    data: Data
    translator: Translator
    translation: Translation
    document: Document

    def effect(self, place: Place) -> Effect:
        """Measure one place. A change that the rules refuse is tried last, together with what it needs."""
        found = None
        refused = []
        for data in islice(changes(self.data, place, self.settings), MOST_CHANGES):
            vmi = self.valid(data)
            if vmi is None:
                refused.append(data)
                continue
            found = self._measured(place, vmi) or found
            if found is not None and found.outcome == "xml":
                return found
        if found is not None:
            return found
        last = (*renamings(self.data, place), *refused[:MOST_REPAIRS])
        repaired = (repair(data, self.settings) for data in last)
        measured = (self._measured(place, vmi) for vmi in repaired if vmi is not None)
        return next((effect for effect in measured if effect), Effect(place=place, outcome="needed"))

    @property
    def settings(self) -> DefaultsSettings:
        """What defaults and rules go by."""
        return self.translator.assumed.defaults

    def difference(self, other: Translation) -> Difference:
        """What of the document differs in another translation."""
        return self.document.against(other.xml)

    def valid(self, data: Data) -> VirtualMachineInstance | None:
        """The manifest, if it can be read and the rules accept it."""
        try:
            vmi = typed(data)
        except msgspec.ValidationError:
            return None
        return None if check(vmi, settings=self.settings, creating=False) else vmi

    def _measured(self, place: Place, vmi: VirtualMachineInstance) -> Effect | None:
        try:
            other = self.translator.translate(vmi)
        except LauncherError:
            return None
        difference = self.difference(other)
        if difference:
            return Effect(place=place, outcome="xml", difference=difference)
        differing = plan_differences(self.translation.plan, other.plan)
        return Effect(place=place, outcome="plan" if differing else "none", plan=differing)


def measure(data: Data, translator: Translator) -> Base:
    """Make ready to measure a manifest.

    Raises:
        LauncherError: it cannot be translated.
    """
    translation = translator.translate(typed(data))
    return Base(data=data, translator=translator, translation=translation, document=Document(translation.xml))
