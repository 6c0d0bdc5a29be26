# SPDX-License-Identifier: Apache-2.0
"""Paths to the fields of an object, written as Kubernetes writes them. Knows nothing about any schema."""

from __future__ import annotations

import re

import msgspec

# How a finding about the whole text, which has no field, names its place.
WHOLE = "manifest"
# A key of a map comes from the user; a path shows no more of it than this.
_LONGEST_SEGMENT = 120
_WORD = re.compile(r"[A-Za-z0-9_-]+")


class FieldPath(msgspec.Struct, frozen=True, gc=False):
    """A path such as ``spec.domain.devices.disks[0].disk.bus`` or ``metadata.labels[app]``.

    Built from ``ROOT`` with ``/`` for fields and ``[]`` for list positions and map keys::

        disks = ROOT / "spec" / "domain" / "devices" / "disks"
        str(disks[0] / "name")  # "spec.domain.devices.disks[0].name"
        str((ROOT / "metadata" / "labels")["app"])  # "metadata.labels[app]"

    ``segment`` is the last part as it is written, with its dot or brackets. Making one is cheap: the
    text is only put together by ``str``.
    """

    parent: FieldPath | None = None
    segment: str = ""

    def __truediv__(self, name: str) -> FieldPath:
        return FieldPath(self, f".{_one_line(name)}")

    def __getitem__(self, key: int | str) -> FieldPath:
        return FieldPath(self, f"[{key if isinstance(key, int) else _one_line(key)}]")

    def amount(self, resource: str) -> FieldPath:
        """The entry of a map of amounts, which is written like a field: ``resources.requests.cpu``."""
        return self / resource if _WORD.fullmatch(resource) else self[resource]

    def __str__(self) -> str:
        return "".join(reversed(self.segments())).removeprefix(".") or WHOLE

    def segments(self) -> list[str]:
        """The parts as they are written, the last first."""
        parts = []
        here: FieldPath | None = self
        while here is not None:
            if here.segment:
                parts.append(here.segment)
            here = here.parent
        return parts


def ancestors(field: str) -> list[str]:
    """The paths above ``field``, the outermost first: ``a.b[c.d].e`` has ``a``, ``a.b`` and ``a.b[c.d]``."""
    above = []
    depth = 0
    for index, character in enumerate(field):
        if depth == 0 and index and character in ".[":
            above.append(field[:index])
        depth += (character == "[") - (character == "]")
    return above


def _one_line(name: str) -> str:
    """A key as it can be shown: paths go to terminals and logs."""
    name = name[:_LONGEST_SEGMENT]
    return name if name.isprintable() else name.encode("unicode_escape").decode()


ROOT = FieldPath()
