# SPDX-License-Identifier: Apache-2.0
"""What switches decide that are left out: a console is there unless a field says no. Measured. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from launcher.errors import LauncherError
from launcher.explain.document import NO_DIFFERENCE, Difference
from launcher.explain.effect import Base
from launcher.explain.manifest import Path, with_value
from launcher.explain.schema import find, spec_of
from launcher.explain.variants import repair

_DEVICES: Final[Path] = ("spec", "domain", "devices")


def absent_differences(base: Base) -> Iterator[tuple[str, Difference]]:
    """What changes in the document when a switch of the devices is written that is absent."""
    written = base.data["spec"]["domain"]["devices"]
    devices = find(spec_of(), ".".join(map(str, _DEVICES)))
    for field in devices.children if devices is not None else ():
        if field.scalar != "boolean" or field.name in written:
            continue
        for value in (False, True):
            difference = _with_switch(base, {**written, field.name: value})
            if difference.atoms:
                yield f"absent {field.path}", difference
                break


def _with_switch(base: Base, devices: dict[str, object]) -> Difference:
    data = with_value(base.data, _DEVICES, devices)
    vmi = base.valid(data) or repair(data, base.settings)
    if vmi is None:
        return NO_DIFFERENCE
    try:
        return base.difference(base.translator.translate(vmi))
    except LauncherError:
        return NO_DIFFERENCE
