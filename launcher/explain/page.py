# SPDX-License-Identifier: Apache-2.0
"""Everything that is to be said about one field, for people and as data. Pure; prints nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from launcher.explain.accepts import accepts
from launcher.explain.defaulted import Filled, defaults_of
from launcher.explain.knowledge import INSTANCE, Fate, fates
from launcher.explain.needs import needs, unserved
from launcher.explain.prerequisites import prerequisites
from launcher.explain.rule_reads import RuleName, readers
from launcher.explain.schema import Field

# More values than this are derived from something: then the step says more than a value.
_MOST_VALUES = 2
_MOST_PATHS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """The answer to ``explain PATH``: ``beside`` is for the manifest to say, too, ``needs`` for the node."""

    fate: Fate
    accepts: tuple[str, ...]
    defaults: tuple[str, ...]
    beside: tuple[str, ...]
    needs: tuple[str, ...]
    unserved: tuple[str, ...]
    rules: tuple[RuleName, ...]
    children: tuple[Fate, ...]

    def as_data(self) -> dict[str, Any]:
        """The page as JSON-like data; what is empty is left out."""
        field = self.fate.field
        data = {
            "field": field.path,
            "type": field.type_text,
            "meaning": field.meaning,
            "required": field.required,
            "disposition": self.fate.disposition and str(self.fate.disposition),
            "xml": list(self.fate.xml),
            "plan": list(self.fate.plan),
            "by": self.fate.by,
            "note": self.fate.line,
            "accepts": list(self.accepts),
            "defaults": list(self.defaults),
            "beside": list(self.beside),
            "needs": list(self.needs),
            "unserved": list(self.unserved),
            "rules": [{"rule": rule.name, "says": rule.summary} for rule in self.rules],
            "fields": [
                {"name": child.field.name, "type": child.field.type_text, "meaning": child.field.meaning}
                for child in self.children
            ],
        }
        return {key: value for key, value in data.items() if value not in ("", [], None, False)}

    def as_text(self) -> str:
        """The page for a terminal."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        field = self.fate.field
        yield _entry("FIELD", field.path + (" (required)" if field.required else ""))
        yield _entry("TYPE", field.type_text)
        if field.meaning:
            yield _entry("MEANS", field.meaning)
        if self.fate.disposition is not None:
            yield _entry("BECOMES", f"{self.fate.disposition}: {becomes(self.fate)}")
        for title, texts in (
            ("ACCEPTS", self.accepts),
            ("DEFAULT", self.defaults),
            ("BESIDE", self.beside),
            ("NEEDS", self.needs),
            ("UNSERVED", self.unserved),
        ):
            for text in texts:
                yield _entry(title, text)
                title = ""
        if self.rules:
            yield from ("", "RULES")
            yield from (f"  {rule.name:<26} {rule.summary}" for rule in self.rules)
        if self.children:
            yield from ("", "FIELDS")
            yield from _children(self.children)


def page(field: Field, kind: str = INSTANCE) -> Page:
    """Look everything up about a field."""
    own = fates(field.path, kind)
    measured = kind == INSTANCE and field.path != "spec"
    return Page(
        fate=own[field.path],
        accepts=accepts(field) if kind == INSTANCE else (),
        defaults=default_phrases(defaults_of(field.path).get(field.path, ()), field) if measured else (),
        beside=tuple(
            path if isinstance(value, dict) and value else f"{path}: {shown_value(value)}"
            for path, value in (prerequisites(field.path) if measured else {}).items()
        ),
        needs=needs(field.path) if measured else (),
        unserved=unserved(field.path) if measured else (),
        rules=readers().get(field.path, ()) if measured else (),
        children=tuple(own[child.path] for child in field.children),
    )


def becomes(fate: Fate) -> str:
    """Where a field goes, in one line."""
    parts = (*fate.xml, *(f"plan {part}" for part in fate.plan))
    if parts:
        return ", ".join(parts[:_MOST_PATHS]) + (", …" if len(parts) > _MOST_PATHS else "")
    acting = f" ({fate.by})" if fate.by else ""
    return f"{fate.line}{acting}"


def default_phrases(filled: tuple[Filled, ...], field: Field) -> tuple[str, ...]:
    """What fills a field in: a value where there is one, and the step that does it."""
    by_step: dict[str, list[Filled]] = {}
    for item in filled:
        by_step.setdefault(item.step.name, []).append(item)
    return tuple(_default(items, field) for items in by_step.values())


def _default(items: list[Filled], field: Field) -> str:
    step = items[0].step
    values = [shown_value(item.value) for item in items]
    constant = len(values) <= _MOST_VALUES and field.scalar != "quantity"
    return f"{' or '.join(values) if constant else 'derived'} ({step.name}: {step.summary})"


def shown_value(value: Any) -> str:
    """A value of a manifest in one line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return "{}" if value == {} else str(value)


def _entry(title: str, text: str) -> str:
    return f"{title + ':' if title else '':<10} {text}"


def _children(children: tuple[Fate, ...]) -> Iterator[str]:
    width = max(len(child.field.name) for child in children)
    types = max(len(child.field.type_text) for child in children)
    for child in children:
        mark = f" [{child.disposition}]" if child.disposition is not None else ""
        yield f"  {child.field.name:<{width}}  {child.field.type_text:<{types}}  {child.field.meaning}{mark}"
