# SPDX-License-Identifier: Apache-2.0
"""Where two versions of an object differ, path by path. Pure; knows nothing about which may."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from launcher.spec.path import FieldPath
from launcher.spec.quantity import Quantity


def differences(old: Any, new: Any, path: FieldPath) -> Iterator[tuple[FieldPath, Any]]:
    """Each place at which ``new`` differs, and what stands there; lists of other lengths differ as a whole.

    An absent part counts as one of which everything is absent, so that the paths found are those of fields.
    """
    if old == new:
        return
    shape = new if old is None else old
    if isinstance(shape, msgspec.Struct) and (old is None or new is None or type(old) is type(new)):
        found = False
        for field in msgspec.structs.fields(shape):
            default = _default(field)
            before = default if old is None else getattr(old, field.name)
            after = default if new is None else getattr(new, field.name)
            for difference in differences(before, after, path / field.encode_name):
                found = True
                yield difference
        if not found:
            yield path, new
    elif isinstance(old, dict) and isinstance(new, dict):
        for key in dict.fromkeys((*old, *new)):
            before, after = old.get(key), new.get(key)
            amounts = isinstance(before, Quantity) or isinstance(after, Quantity)
            here = path.amount(key) if amounts else path[key]
            yield from differences(before, after, here)
    elif isinstance(old, tuple) and isinstance(new, tuple) and len(old) == len(new):
        for index, (before, after) in enumerate(zip(old, new, strict=True)):
            yield from differences(before, after, path[index])
    else:
        yield path, new


def meet(one: str, other: str) -> bool:
    """Whether one of the two paths is the other or leads to it."""
    short, long = sorted((one, other), key=len)
    return long.startswith(short) and (len(long) == len(short) or long[len(short)] in ".[")


def _default(field: msgspec.structs.FieldInfo) -> Any:
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return None if field.default is msgspec.NODEFAULT else field.default
