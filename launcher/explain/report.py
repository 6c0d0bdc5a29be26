# SPDX-License-Identifier: Apache-2.0
"""One explained domain as text and as data. Pure; prints nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

from launcher.explain.annotated import annotated, labels
from launcher.explain.defaulted import Filled
from launcher.explain.page import shown_value
from launcher.explain.provenance import Provenance, Silent


def as_text(found: Provenance, *, defaults: bool) -> str:
    """The annotated domain, then what does not show in it, as comments: the text stays well-formed XML."""
    blocks = [
        ("Left out", [f"<{path}>  {field}" for path, field in found.left_out]),
        ("Acted on, but not in the XML", [_silent(item) for item in found.silent if item.acts]),
        ("Without effect here", [_silent(item) for item in found.silent if not item.acts]),
        ("Filled in by the defaults", list(_defaults(found.defaults)) if defaults else []),
    ]
    text = [annotated(found)]
    for title, lines in blocks:
        if lines:
            text += ["", "<!--", f"{title}:", *(f"  {_harmless(line)}" for line in lines), "-->"]
    return "\n".join(text)


def as_data(found: Provenance, *, defaults: bool) -> dict[str, Any]:
    """The same as JSON-like data: ``sources`` by part of an element ("" for its existence)."""
    data: dict[str, Any] = {
        "xml": found.document.text,
        "elements": list(_elements(found)),
        "leftOut": [{"element": path, "by": field} for path, field in found.left_out],
        "notInTheXml": [_plain(item) for item in found.silent if item.acts],
        "withoutEffect": [_plain(item) for item in found.silent if not item.acts],
    }
    if defaults:
        data["defaults"] = [
            {"step": item.step.name, "field": item.shown, "value": item.value} for item in found.defaults
        ]
    return data


def _elements(found: Provenance) -> Iterator[dict[str, Any]]:
    for number, parts in groupby(found.document.atoms(), key=lambda atom: atom[0]):
        sources = {part: list(labels(found, (number, part))) for _, part in parts}
        yield {
            "path": found.document.path(number),
            "sources": {part: names for part, names in sources.items() if names},
        }


def _silent(item: Silent) -> str:
    what = f"{item.disposition}: " if item.disposition is not None and not item.acts else ""
    return f"{item.path}  {what}{item.reason}"


def _plain(item: Silent) -> dict[str, str]:
    return {"field": item.path, "disposition": str(item.disposition or ""), "reason": item.reason}


def _defaults(items: Iterable[Filled]) -> Iterator[str]:
    for step, filled in groupby(items, key=lambda item: item.step):
        yield f"{step.name}: {step.summary}"
        yield from (f"  + {item.shown}: {shown_value(item.value)}" for item in filled)


def _harmless(line: str) -> str:
    """Text for inside of a comment: two hyphens would end it."""
    return line.replace("--", "- -")
