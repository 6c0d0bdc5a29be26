# SPDX-License-Identifier: Apache-2.0
"""Reading manifest files, and splitting one that holds several documents. Judges nothing: the agent does."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import click
import yaml

from launcher.errors import InvalidRequest, Violation

# The agent takes 4 MiB of manifest; companions in the same file may come on top.
_MAX_BYTES = 16 * 1024 * 1024

_SEPARATOR = re.compile(r"^---", re.MULTILINE)


class Mark(Protocol):
    """A place in a text, counted in characters from 0; PyYAML has two classes for it."""

    @property
    def index(self) -> int: ...
    @property
    def line(self) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One document: its kind, and its text after as many empty lines as it has before it in the file."""

    kind: str
    text: str


def read(file: str) -> str:
    """The text of ``file``; ``-`` is standard input.

    Raises:
        InvalidRequest: it cannot be read or is no UTF-8.
    """
    try:
        with click.open_file(file, "rb") as stream:
            data: bytes = stream.read(_MAX_BYTES + 1)
        if len(data) > _MAX_BYTES:
            raise _invalid(file, f"is larger than {_MAX_BYTES} bytes")
        return data.decode()
    except OSError as error:
        raise _invalid(file, error.strerror or str(error)) from error
    except UnicodeDecodeError as error:
        raise _invalid(file, "is not UTF-8 text") from error


def split(text: str) -> tuple[Document, ...]:
    """The documents of ``text``. Text that is no YAML is one document: the agent will say what is wrong."""
    try:
        # One document is the rule: then reading up to its kind is enough.
        spans = list(_spans(text)) if _SEPARATOR.search(text) else []
        if len(spans) < 2:
            return (Document(kind=_first_kind(text), text=text),)
    except yaml.YAMLError:
        return (Document(kind="", text=text),)
    return tuple(Document(kind=kind, text="\n" * line + text[start:end]) for kind, line, start, end in spans)


def _first_kind(text: str) -> str:
    """``kind`` of the first document; reads no further than to it."""
    depth, key = 0, None
    for event in yaml.parse(text, Loader=yaml.CSafeLoader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth, key = depth + 1, None
        elif isinstance(event, yaml.CollectionEndEvent):
            depth, key = depth - 1, None
        elif isinstance(event, yaml.ScalarEvent) and depth == 1:
            if key == "kind":
                return str(event.value)
            key = event.value if key is None else None
    return ""


def _spans(text: str) -> Iterator[tuple[str, int, int, int]]:
    """Kind, first line, start and end of each document that is not empty. Builds no objects."""
    depth, kind, key, start, line = 0, "", None, 0, 0
    seen = False
    for event in yaml.parse(text, Loader=yaml.CSafeLoader):
        if isinstance(event, yaml.DocumentStartEvent):
            depth, kind, key, seen = 0, "", None, False
            start, line = _index(event.end_mark), _line(event.end_mark)
        elif isinstance(event, yaml.DocumentEndEvent):
            if seen:
                yield kind, line, start, _index(event.start_mark)
        elif isinstance(event, yaml.CollectionStartEvent):
            depth, key, seen = depth + 1, None, True
        elif isinstance(event, yaml.CollectionEndEvent):
            depth, key = depth - 1, None
        elif isinstance(event, yaml.ScalarEvent) and depth == 1:
            kind = event.value if key == "kind" else kind
            key = event.value if key is None else None


def _index(mark: Mark | None) -> int:
    return mark.index if mark is not None else 0


def _line(mark: Mark | None) -> int:
    return mark.line if mark is not None else 0


def keyed_data(text: str, kind: str) -> tuple[str, dict[str, bytes]]:
    """Name and data of a Secret or ConfigMap manifest (``data``, ``stringData``, ``binaryData``).

    Raises:
        InvalidRequest: it is none. Never shows a value.
    """
    try:
        document = yaml.load(text, Loader=yaml.CSafeLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f" (line {mark.line + 1})" if mark is not None else ""
        raise _invalid(kind, f"is no YAML{place}") from error
    if not isinstance(document, dict) or document.get("kind") != kind:
        raise _invalid(kind, f"must be a manifest of kind {kind}")
    metadata = document.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if not isinstance(name, str) or not name:
        raise _invalid(f"{kind}.metadata.name", "must be set")
    encoded = ("data",) if kind == "Secret" else ("binaryData",)
    plain = ("stringData",) if kind == "Secret" else ("data",)
    found: dict[str, bytes] = {}
    for section in (*encoded, *plain):
        for key, value in _section(document, kind, section).items():
            if not isinstance(value, str):
                raise _invalid(f"{kind} {name}: {section}.{key}", "must be a string")
            found[key] = (
                value.encode() if section in plain else _decode(value, f"{kind} {name}: {section}.{key}")
            )
    return name, found


def token_account(text: str) -> str:
    """The service account that a Secret with its token is for; empty for every other Secret.

    ``text`` is what ``keyed_data`` has read well.
    """
    document = yaml.load(text, Loader=yaml.CSafeLoader)
    if document.get("type") != "kubernetes.io/service-account-token":
        return ""
    annotations = document["metadata"].get("annotations")
    account = annotations.get("kubernetes.io/service-account.name") if isinstance(annotations, dict) else None
    return account if isinstance(account, str) else ""


def _section(document: dict[str, Any], kind: str, section: str) -> dict[str, Any]:
    value = document.get(section) or {}
    if not isinstance(value, dict):
        raise _invalid(f"{kind}.{section}", "must be a mapping")
    return value


def _decode(text: str, where: str) -> bytes:
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except binascii.Error as error:
        raise _invalid(where, "must be base64") from error


def _invalid(field: str, message: str) -> InvalidRequest:
    return InvalidRequest([Violation(field=field, type="FieldValueInvalid", message=message)])
