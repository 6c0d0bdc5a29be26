# SPDX-License-Identifier: Apache-2.0
"""From text or parsed data to typed objects: the entry points of reading. Checks no rule between fields.

Accepted are YAML (several documents too) and JSON, up to 4 MiB, 300,000 values and 64 levels, of the kinds
VirtualMachineInstance, VirtualMachine (its template is taken), VirtualMachineInstanceMigration
and MigrationPolicy. YAML aliases are accepted within those bounds; merge keys (``<<``), duplicate keys
and tags beyond YAML's own types are not. Null means absent, but not as an item of a list.

Everything here raises ``InvalidSpec``, and nothing else, for whatever is wrong with its input.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

import msgspec

from launcher.errors import InvalidSpec, Violation
from launcher.spec.codec import dec_hook
from launcher.spec.findings import INVALID, UNKNOWN, Findings
from launcher.spec.json_nodes import NotJSON, read_json
from launcher.spec.kinds import KINDS, VMI, AnyObject, Kind, check_envelope, instance_of, kind_of
from launcher.spec.model import (
    MigrationPolicy,
    VirtualMachine,
    VirtualMachineInstance,
    VirtualMachineInstanceMigration,
)
from launcher.spec.nodes import MAX_BYTES, MAX_DEPTH, Mapping, Node, from_builtins, is_null, refuse
from launcher.spec.path import ROOT, ancestors
from launcher.spec.positions import NOWHERE, Positions, with_positions
from launcher.spec.violations import ABSENT, read_as
from launcher.spec.yaml_nodes import read_yaml

_T = TypeVar("_T", VirtualMachineInstance, VirtualMachineInstanceMigration, MigrationPolicy)
_P = TypeVar("_P")

MOST_BEFORE_RULES: Final = 100
"""With more that cannot be read than this, the rules would mostly repeat it, and take their time."""

_LIKE_JSON: Final = re.compile(r"\s*[{\[]")
_WORD: Final = re.compile(r"[A-Za-z][A-Za-z0-9]*")
_SURELY_JSON: Final = re.compile(r'\s*(?:{\s*"|\[)')
# Signs, in JSON as msgspec writes it, of characters that the careful readers refuse. Harmless text
# (a backslash before a u) may show them too and is then read carefully for nothing.
_SUSPICIOUS: Final = re.compile(rb"\\[ubf]|\x7f|\xc2[\x80-\x84\x86-\x9f]|\xef\xbf[\xbe\xbf]")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedObject:
    """One object of a manifest.

    ``kind`` is that of ``obj``, so it is VirtualMachineInstance for a VirtualMachine too. ``positions``
    leads from field paths to lines and columns; ``source`` is what the caller named the text.
    ``volumes_strategy`` is the updateVolumesStrategy of a VirtualMachine; empty: none.
    """

    kind: str
    obj: AnyObject
    positions: Positions = NOWHERE
    source: str = ""
    volumes_strategy: str = ""


def load_manifests(text: str | bytes, *, source: str = "", judge: bool = False) -> tuple[LoadedObject, ...]:
    """Read all objects of a YAML or JSON text, in order.

    With ``judge`` an object that does not fit its schema is also judged by the rules, as far as it could be
    read, so that one mistake hides no other. (One that fits is left for the caller to judge.)

    Raises ``InvalidSpec`` with everything that is wrong in any of them; a text without objects is wrong.
    """
    content = _as_text(text)
    fast = _load_json_fast(content, source)
    if fast is not None:
        return (fast,)
    findings = Findings()
    loaded: list[LoadedObject | None] = []
    fatal: tuple[Violation, ...] = ()
    try:
        loaded = [
            _read_object(node, findings, source, judge) for node in _documents(content) if not is_null(node)
        ]
    except InvalidSpec as error:
        fatal = error.violations  # where reading stopped: said first, as it hides what follows
    if fatal or findings:
        raise InvalidSpec((*fatal, *findings.violations()), hint=f"in {source}" if source else "")
    if not loaded:
        raise refuse(f"there is no object in the text; accepted kinds: {', '.join(KINDS)}")
    return tuple(item for item in loaded if item is not None)


def load_vmi(text: str | bytes, *, source: str = "") -> VirtualMachineInstance:
    """Read the one VirtualMachineInstance (or VirtualMachine) of a text. Raises ``InvalidSpec``."""
    return _the_only(load_manifests(text, source=source), VirtualMachineInstance)


def load_migration(text: str | bytes, *, source: str = "") -> VirtualMachineInstanceMigration:
    """Read the one VirtualMachineInstanceMigration of a text. Raises ``InvalidSpec``."""
    return _the_only(load_manifests(text, source=source), VirtualMachineInstanceMigration)


def load_migration_policy(text: str | bytes, *, source: str = "") -> MigrationPolicy:
    """Read the one MigrationPolicy of a text. Raises ``InvalidSpec``."""
    return _the_only(load_manifests(text, source=source), MigrationPolicy)


def decode_object(raw: object, *, judge: bool = False) -> LoadedObject:
    """Read an object that is parsed already: dicts, lists, text, integers, booleans and None.

    ``judge`` as in ``load_manifests``.

    Numbers that came as floats (a ``google.protobuf.Struct`` has no others) go through
    ``normalise_numbers`` first. Raises ``InvalidSpec`` with everything that is wrong.
    """
    fast = _convert_fast(raw)
    if fast is not None:
        return fast
    findings = Findings()
    loaded = _read_object(from_builtins(raw), findings, "", judge)
    if loaded is None:
        raise InvalidSpec(findings.violations())
    return LoadedObject(
        kind=loaded.kind, obj=loaded.obj, positions=Positions(template=loaded.positions.template)
    )


def decode_part(raw: object, model: type[_P], path: str) -> tuple[_P, tuple[Violation, ...]]:
    """Read parsed data as a part of an object, ``model``, that stands at ``path`` (dots between names).

    Gives what could be read, and a finding for each field that could not.
    """
    findings, here = Findings(), ROOT
    for name in path.split("."):
        here = here / name
    try:
        data = read_as(model, from_builtins(raw), here, findings)
    except InvalidSpec as error:
        unread = (replace(violation, field=path) for violation in error.violations)
        return msgspec.convert({}, model), tuple(unread)
    part = msgspec.convert({} if data is ABSENT else data, model, dec_hook=dec_hook)
    return part, findings.violations()


def normalise_numbers(raw: Any, depth: int = 0) -> Any:
    """Copy parsed data, with floats that are whole numbers of at most 64 bits turned into integers."""
    if isinstance(raw, float):
        return int(raw) if raw.is_integer() and abs(raw) <= 2**63 else raw
    if depth > MAX_DEPTH:
        return raw  # decode_object refuses it
    if isinstance(raw, dict):
        return {key: normalise_numbers(value, depth + 1) for key, value in raw.items()}
    if isinstance(raw, list | tuple):
        return [normalise_numbers(item, depth + 1) for item in raw]
    return raw


def _as_text(text: str | bytes) -> str:
    size = len(text)
    try:
        content = text.decode("utf-8-sig") if isinstance(text, bytes) else text.removeprefix("\ufeff")
        if isinstance(text, str) and not text.isascii():
            size = len(text.encode())
    except UnicodeError as error:
        raise refuse("the text is not UTF-8") from error
    if size > MAX_BYTES:
        raise refuse(f"the text has {size} bytes; accepted are up to {MAX_BYTES} (4 MiB)")
    return content


def _documents(text: str) -> Iterator[Node]:
    """The documents of a text. What begins like JSON but is none may still be YAML's flow style."""
    if not _LIKE_JSON.match(text):
        yield from read_yaml(text)
        return
    try:
        yield read_json(text)
        return
    except NotJSON as error:
        not_json = error
    try:
        documents = list(read_yaml(text))
    except InvalidSpec as error:
        raise (not_json if _SURELY_JSON.match(text) else error) from not_json
    yield from documents


def _read_object(node: Node, findings: Findings, source: str, judge: bool) -> LoadedObject | None:
    """Read one document; None if something is wrong with it."""
    if not isinstance(node, Mapping):
        findings.wrong_type(ROOT, node, "an object with apiVersion, kind, metadata and spec")
        return None
    before = len(findings)
    kind = kind_of(node, findings)
    if kind is None:
        return None
    data = read_as(kind.model, node, ROOT, findings)
    check_envelope(kind, {} if data is ABSENT else data, node, findings)
    if len(findings) > before:
        if judge and data is not ABSENT:
            _add_rule_findings(kind, data, node, findings)
        return None
    try:
        obj = msgspec.convert(data, kind.model, dec_hook=dec_hook)
    except msgspec.ValidationError as error:
        # The readers of fields are at least as strict, so this says that they have a gap.
        findings.add(ROOT, INVALID, str(error), node, show=False)
        return None
    return _loaded(obj, Positions(root=node), source)


def _add_rule_findings(kind: Kind, data: dict[str, Any], node: Mapping, findings: Findings) -> None:
    """Judge by the rules what could be read of an object that does not fit its schema.

    What a rule says about a field that could not be read, or about one around or below it, is left out: the
    value that is missing there may be what it misses. So is what needs such a field, and a name that leads
    nowhere when something has none.
    """
    from launcher.spec.rules import (
        check,
        check_migration,
        check_policy,
    )  # they are needed only here, and not cheap
    from launcher.spec.rules.finding import NOT_FOUND

    if findings.unread_object or len(findings) > MOST_BEFORE_RULES:
        return
    obj = msgspec.convert(data, kind.model, dec_hook=dec_hook)
    read = _loaded(obj, Positions(root=node), "")
    found: tuple[Violation, ...] = ()
    if isinstance(read.obj, VirtualMachineInstance):
        found = check(read.obj)
    elif isinstance(read.obj, VirtualMachineInstanceMigration):
        found = check_migration(read.obj)
    else:
        found = check_policy(read.obj)
    known = findings.violations()
    unread = {violation.field for violation in known} | findings.probable
    around = {parent for v in known if v.type != UNKNOWN for parent in ancestors(v.field)}
    missing = {_last(field) for field in unread}
    for violation in with_positions(found, read.positions):
        field = violation.field
        if violation.type == NOT_FOUND and findings.nameless:
            continue
        if _needs(violation) & missing:
            continue
        if field not in around and not unread.intersection((field, *ancestors(field))):
            findings.take(violation)


def _needs(violation: Violation) -> set[str]:
    """The words by which a message says what else it needs: names of fields, if it misses any."""
    _, _, needed = violation.message.partition("need")
    return {*_WORD.findall(needed)} - {_last(violation.field)}


def _last(field: str) -> str:
    """The name of a field without what is around it: ``bus`` of ``spec.domain.devices.disks[0].disk.bus``."""
    words = _WORD.findall(field)
    return words[-1] if words else ""


def _loaded(obj: AnyObject | VirtualMachine, positions: Positions, source: str) -> LoadedObject:
    if isinstance(obj, VirtualMachine):
        below = Positions(root=positions.root, json=positions.json, template=True)
        return LoadedObject(
            kind=VMI,
            obj=instance_of(obj),
            positions=below,
            source=source,
            volumes_strategy=obj.spec.update_volumes_strategy or "",
        )
    return LoadedObject(kind=type(obj).__name__, obj=obj, positions=positions, source=source)


def _the_only(loaded: tuple[LoadedObject, ...], wanted: type[_T]) -> _T:
    kind = wanted.__name__
    if len(loaded) != 1:
        raise refuse(f"there are {len(loaded)} objects in the text; accepted is one {kind}")
    obj = loaded[0].obj
    if not isinstance(obj, wanted):
        raise refuse(f"the object is a {loaded[0].kind}; accepted here is a {kind}")
    return obj


def _load_json_fast(text: str, source: str) -> LoadedObject | None:
    """The object of a JSON text without positions; None for whatever needs a closer look."""
    if not _LIKE_JSON.match(text):
        return None
    try:
        raw = json.loads(text, object_pairs_hook=_unique, parse_float=_give_up, parse_constant=_give_up)
    except (ValueError, RecursionError):
        return None
    return _convert_fast(raw, text, source)


def _convert_fast(raw: object, text: str = "", source: str = "") -> LoadedObject | None:
    kind = KINDS.get(str(raw.get("kind"))) if isinstance(raw, dict) else None
    if kind is None or not isinstance(raw, dict) or not _is_plain(raw) or not _has_envelope(kind, raw):
        return None
    try:
        obj = msgspec.convert(raw, kind.model, dec_hook=dec_hook)
    except msgspec.ValidationError:
        return None
    return _loaded(obj, Positions(json=text), source)


def _has_envelope(kind: Kind, raw: dict[str, Any]) -> bool:
    metadata = raw.get("metadata")
    return (
        raw.get("apiVersion") in kind.versions
        and isinstance(metadata, dict)
        and bool(metadata.get("name"))
        and kind.model is not VirtualMachine
    )


def _is_plain(raw: object) -> bool:
    """Whether the data is surely free of characters and values that the careful readers refuse."""
    try:
        return _SUSPICIOUS.search(msgspec.json.encode(raw)) is None
    except (TypeError, ValueError, OverflowError, RecursionError):
        return False


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("duplicate key")
    return result


def _give_up(text: str) -> float:
    raise ValueError(f"{text} must be read by its field")
