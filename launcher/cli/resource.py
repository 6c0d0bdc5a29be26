# SPDX-License-Identifier: Apache-2.0
"""How commands name objects: ``vmi NAME``, ``vmi/NAME`` or, where only instances fit, ``NAME``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

Function = TypeVar("Function", bound=Callable[..., Any])

INSTANCE = "vmi"
MIGRATION = "vmim"

_WORDS = {
    INSTANCE: ("vmi", "vmis", "virtualmachineinstance", "virtualmachineinstances"),
    MIGRATION: ("vmim", "vmims", "virtualmachineinstancemigration", "virtualmachineinstancemigrations"),
}


def kind_of(word: str) -> str | None:
    """INSTANCE or MIGRATION for what kubectl's users call them, ``.kubevirt.io`` included."""
    plain = word.lower().removesuffix(".kubevirt.io")
    return next((kind for kind, words in _WORDS.items() if plain in words), None)


def resource(words: Sequence[str]) -> tuple[str, str | None]:
    """Kind and name of ``vmi``, ``vmi NAME`` or ``vmi/NAME``.

    Raises:
        click.UsageError: it is none of these.
    """
    parts = [part for word in words[:1] for part in word.split("/", 1)] + list(words[1:])
    kind = kind_of(parts[0]) if parts else None
    if kind is None:
        shown = f"{parts[0]!r} is no resource" if parts else "which resource?"
        raise click.UsageError(f"{shown}: use vmi or vmim")
    if len(parts) > 2:
        raise click.UsageError(f"one name is enough, not {' '.join(parts[1:])}")
    return kind, parts[1] if len(parts) == 2 else None


def instance_name(words: Sequence[str]) -> str:
    """The name in ``NAME``, ``vmi NAME`` or ``vmi/NAME``.

    Raises:
        click.UsageError: it is none of these.
    """
    if len(words) == 1 and "/" not in words[0]:
        return words[0]
    kind, name = resource(words)
    if kind != INSTANCE or name is None:
        raise click.UsageError("name one instance: NAME, vmi NAME or vmi/NAME")
    return name


def _one_instance(context: click.Context, parameter: click.Parameter, value: tuple[str, ...]) -> str:
    return instance_name(value)


def vmi_arguments(function: Function) -> Function:
    """The argument ``name`` of commands about one instance."""
    return click.argument("name", metavar="[vmi] NAME", nargs=-1, required=True, callback=_one_instance)(
        function
    )


def placed_instance(text: str) -> tuple[str, str]:
    """Name and namespace (empty: none was given) in ``NAME`` or ``vmi/NAME[/NAMESPACE]``, one word.

    Raises:
        click.UsageError: it is none of these.
    """
    head, _, rest = text.partition("/")
    if rest:
        name, _, namespace = rest.partition("/")
        if kind_of(head) == INSTANCE and name and "/" not in namespace:
            return name, namespace
    elif head:
        return head, ""
    raise click.UsageError(f"{text!r} names no instance: use NAME or vmi/NAME[/NAMESPACE]")
