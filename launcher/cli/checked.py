# SPDX-License-Identifier: Apache-2.0
"""A manifest file read and checked without an agent: what validate, translate, plan and explain share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import click

from launcher.cli import exits
from launcher.cli.documents import read, split
from launcher.errors import InvalidSpec, Violation
from launcher.spec.defaults import DefaultsSettings
from launcher.spec.load import LoadedObject, load_manifests
from launcher.spec.model import VirtualMachineInstance
from launcher.spec.positions import NOWHERE, with_positions
from launcher.spec.rules import check

_BESIDE = ("Secret", "ConfigMap")

Made = TypeVar("Made")


def load_checked(file: str, architecture: str) -> tuple[LoadedObject, ...]:
    """The objects in ``file`` (Secrets and ConfigMaps beside them left out), valid by schema and rules.

    One that names no architecture is judged as one for ``architecture``.

    Raises:
        InvalidSpec: with everything that was found, each with its place.
        InvalidRequest: the file cannot be read.
    """
    documents = split(read(file))
    texts = [d.text for d in documents if d.kind not in _BESIDE] or [documents[0].text]
    found: list[Violation] = []
    loaded: list[LoadedObject] = []
    for text in texts:
        try:
            objects = load_manifests(text, judge=True)
        except InvalidSpec as error:
            found += error.violations
            continue
        for item in objects:
            if isinstance(item.obj, VirtualMachineInstance):
                found += with_positions(
                    check(item.obj, settings=DefaultsSettings(architecture=architecture)), item.positions
                )
        loaded += objects
    if found:
        raise InvalidSpec(found)
    return tuple(loaded)


def load_instance(file: str, architecture: str) -> tuple[VirtualMachineInstance, LoadedObject]:
    """The one instance in ``file``, and what it was read from; ``architecture`` as for ``load_checked``.

    Raises:
        InvalidSpec: there is none, there are several, or it is wrong.
        InvalidRequest: the file cannot be read.
    """
    instances = [
        (item.obj, item)
        for item in load_checked(file, architecture)
        if isinstance(item.obj, VirtualMachineInstance)
    ]
    if len(instances) != 1:
        message = f"must hold one VirtualMachineInstance, not {len(instances)}"
        raise InvalidSpec([Violation(field="", type="FieldValueInvalid", message=message)])
    return instances[0]


def made_of(file: str, make: Callable[[VirtualMachineInstance], Made], *, architecture: str) -> Made | None:
    """What ``make`` makes of the one instance in ``file``; None when the instance is wrong: every error
    was printed then, with its place. ``architecture`` as for ``load_checked``.

    Raises:
        InvalidRequest: the file cannot be read.
        HostUnsupported, Exhausted: as ``make`` does.
    """
    positions = NOWHERE
    try:
        vmi, loaded = load_instance(file, architecture)
        positions = loaded.positions
        return make(vmi)
    except InvalidSpec as error:
        placed = with_positions(error.violations, positions)
        click.echo(exits.explain(InvalidSpec(placed, hint=error.hint), file=file), err=True)
        return None
