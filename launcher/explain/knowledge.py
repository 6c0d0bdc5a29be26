# SPDX-License-Identifier: Apache-2.0
"""What is known of a field, measured or declared: what becomes of it, and by what. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from launcher.explain.declared import Disposition, declaration
from launcher.explain.measured import Measured, measured
from launcher.explain.schema import Field, spec_of

INSTANCE = "VirtualMachineInstance"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fate:
    """What becomes of a field.

    ``xml`` are paths below ``<domain>``, ``plan`` parts of the plan, ``by`` is the module that acts on it,
    ``line`` what is declared of it. An object has no fate of its own when only its fields have.
    """

    field: Field
    disposition: Disposition | None
    xml: tuple[str, ...] = ()
    plan: tuple[str, ...] = ()
    by: str = ""
    line: str = ""


def fates(path: str = "spec", kind: str = INSTANCE) -> dict[str, Fate]:
    """What becomes of the field ``path`` and of all below it, by path, in the order of the schema."""
    seen = measured(path) if kind == INSTANCE else {}
    return {
        field.path: _fate(field, kind, seen)
        for field in spec_of(kind).walk()
        if field.path == path or field.path.startswith((f"{path}.", f"{path}[")) or path == "spec"
    }


def contradiction(fate: Fate, kind: str = INSTANCE) -> str:
    """Why what is measured and what is declared of a leaf do not fit; empty: they do."""
    declared = declaration(fate.field, kind)
    if not fate.field.is_leaf:
        return ""
    if fate.disposition is None:
        return "shows in no translation: say in launcher/explain/declared.py what becomes of it"
    if declared is not None and (fate.xml or fate.plan):
        what = ", ".join((*fate.xml, *fate.plan))
        return f"is declared as {declared.disposition} ({declared.path}), but it changes {what}"
    return ""


def _fate(field: Field, kind: str, seen: Mapping[str, Measured]) -> Fate:
    found = seen.get(field.path, Measured())
    if found.refusal:
        return Fate(field=field, disposition=Disposition.REFUSED, line=found.refusal)
    declared = declaration(field, kind)
    if found.xml or found.plan:
        shown = Disposition.TRANSLATED if found.xml else Disposition.ENFORCED
        if declared is None or field.is_leaf:
            return Fate(field=field, disposition=shown, xml=found.xml, plan=found.plan)
    if declared is None:
        return Fate(field=field, disposition=None)
    return Fate(field=field, disposition=declared.disposition, by=declared.by, line=declared.line)
