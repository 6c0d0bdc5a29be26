# SPDX-License-Identifier: Apache-2.0
"""Every field has a meaning and a fate, the examples reach all of them, and docs/fields.md says so."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import msgspec
import pytest

from launcher.explain.declared import DECLARED, Declaration, Disposition
from launcher.explain.examples import examples
from launcher.explain.fields_doc import fields_markdown
from launcher.explain.knowledge import Fate, contradiction, fates
from launcher.explain.schema import SPECS, Field, find, meanings, spec_of
from launcher.spec import model
from launcher.spec.model.base import Model

ROOT = Path(__file__).parents[3]
DOCUMENT = ROOT / "docs" / "fields.md"
# What acts on a node; what only checks, shows or hands back a manifest does not count.
ACTING = ("agent", "console", "guest", "migration", "network", "storage")
# The options of policies are read by the engine: see the test about those.
KINDS = ("VirtualMachineInstance", "VirtualMachineInstanceMigration")
DECLARATIONS = [(kind, entry) for kind, entries in DECLARED.items() for entry in entries]


@cache
def all_fates(kind: str) -> dict[str, Fate]:
    return fates(kind=kind)


def leaves(kind: str) -> list[Field]:
    return [field for field in spec_of(kind).walk() if field.is_leaf]


@pytest.mark.parametrize("kind", SPECS)
def test_every_field_has_a_meaning(kind: str) -> None:
    missing = [field.path for field in spec_of(kind).walk() if not field.meaning and field.path != "spec"]
    assert missing == [], "say it in the docstring of the class: a line 'name: meaning'"


def test_docstrings_describe_the_fields_in_their_order() -> None:
    classes = [item for item in vars(model).values() if isinstance(item, type) and issubclass(item, Model)]
    described = [kind for kind in classes if meanings(kind)]
    assert len(described) > 100
    for kind in described:
        assert list(meanings(kind)) == list(kind.__struct_fields__), kind.__name__


def test_the_examples_set_every_field() -> None:
    reached = {place.field.path for example in examples() for place in example.places if place.field}
    assert [f.path for f in leaves("VirtualMachineInstance") if f.path not in reached] == []


def test_the_examples_are_valid_but_for_the_old_bindings() -> None:
    assert [example.name for example in examples() if not example.valid] == ["old-bindings"]


@pytest.mark.parametrize("kind", SPECS)
def test_every_field_is_measured_or_declared_and_never_both(kind: str) -> None:
    wrong = {path: why for path, fate in all_fates(kind).items() if (why := contradiction(fate, kind))}
    assert wrong == {}, "see launcher/explain/declared.py"


@pytest.mark.parametrize(("kind", "entry"), DECLARATIONS, ids=lambda item: getattr(item, "path", item))
def test_declarations_are_about_fields_that_exist(kind: str, entry: Declaration) -> None:
    field = find(spec_of(kind), entry.path)
    assert field is not None
    assert field.path == entry.path


@pytest.mark.parametrize(
    ("kind", "entry"),
    [pair for pair in DECLARATIONS if pair[1].by],
    ids=lambda item: getattr(item, "path", item),
)
def test_the_module_that_is_said_to_act_reads_the_field(kind: str, entry: Declaration) -> None:
    source = (ROOT / entry.by.replace(".", "/")).with_suffix(".py").read_text()
    assert entry.disposition is Disposition.ENFORCED
    assert re.search(rf"\.{attribute(entry)}\b", source), f"{entry.by} does not look at it any more"


@pytest.mark.parametrize(
    "entry",
    [entry for kind in KINDS for entry in DECLARED[kind] if entry.disposition is Disposition.NOT_YET],
    ids=lambda entry: str(entry.path),
)
def test_nothing_acts_on_what_is_said_to_be_ignored(entry: Declaration) -> None:
    name = attribute(entry)
    if "_" not in name:
        return  # a word that other objects have as a field, too
    readers = [
        str(path.relative_to(ROOT))
        for part in ACTING
        for path in (ROOT / "launcher" / part).rglob("*.py")
        if re.search(rf"\.{name}\b", path.read_text())
    ]
    assert readers == [], f"{entry.path} is declared as {entry.disposition}"


def attribute(entry: Declaration) -> str:
    """The name in Python of the field that a declaration is about."""
    parent, _, last = entry.path.rpartition(".")
    for kind in SPECS:
        around = find(spec_of(kind), parent)
        if around is not None and around.child(last) is not None:
            owner = SPECS[kind] if parent == "spec" else getattr(model, around.type_name)
            return next(item.name for item in msgspec.structs.fields(owner) if item.encode_name == last)
    raise AssertionError(entry.path)


def test_the_document_is_what_the_code_says() -> None:
    assert DOCUMENT.read_text() == fields_markdown(), "docs/fields.md is stale: run make docs, read the diff"


@pytest.mark.parametrize("kind", SPECS)
def test_every_field_is_in_the_document_with_what_becomes_of_it(kind: str) -> None:
    section = DOCUMENT.read_text().partition(f"\n## {kind}\n")[2].partition("\n## ")[0]
    rows = dict(re.findall(r"^\| `([^`]+)`\*? \| [^|]+ \| ([^|]+) \|", section, re.MULTILINE))
    accepted = {str(item) for item in Disposition}
    assert [f.path for f in leaves(kind) if rows.get(f.path) not in accepted] == []
    assert set(rows) == {field.path for field in spec_of(kind).walk()} - {"spec"}


def test_a_field_that_is_neither_measured_nor_declared_is_found() -> None:
    field = find(spec_of(), "spec.hostname")
    assert field is not None
    assert "declared.py" in contradiction(Fate(field=field, disposition=None))


def test_a_declaration_of_something_that_shows_is_found() -> None:
    field = find(spec_of(), "spec.domain.memory.reservedOverhead.memLock")
    assert field is not None
    fate = Fate(field=field, disposition=Disposition.TRANSLATED, xml=("metadata",))
    assert "not applicable on a node" in contradiction(fate)
