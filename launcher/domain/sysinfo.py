# SPDX-License-Identifier: Apache-2.0
"""``<sysinfo>``: SMBIOS strings. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from launcher.domain.element import E, Element
from launcher.plan.model import Entry, VMPlan


def sysinfo(plan: VMPlan) -> Iterator[Element]:
    """System and chassis strings; blocks without strings are left out."""
    yield E(
        "sysinfo",
        _block("system", plan.sysinfo.system),
        _block("chassis", plan.sysinfo.chassis),
        type="smbios",
    )


def _block(tag: str, entries: tuple[Entry, ...]) -> Element | None:
    if not entries:
        return None
    return E(tag, *map(_entry, entries))


# All but UUIDs and serial numbers are the same in all domains of a node.
@lru_cache(maxsize=1024)
def _entry(entry: Entry) -> Element:
    return E("entry", entry.value, name=entry.name)
