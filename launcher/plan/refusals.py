# SPDX-License-Identifier: Apache-2.0
"""Collects what a node cannot do, so that a manifest is refused once, with every reason. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from launcher.errors import Exhausted, HostUnsupported

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that the node lacks: ``capability`` names it, ``field`` is the path that needs it."""

    capability: str
    field: str
    why: str
    hint: str = ""


class Refusals:
    """What was found so far. Mutable on purpose, and alive only while one plan is made."""

    def __init__(self) -> None:
        self._unsupported: list[HostUnsupported] = []
        self._exhausted: list[Exhausted] = []

    def attempt(self, part: Callable[[], T], instead: T) -> T:
        """``part()``; when the node cannot do it, that is noted and ``instead`` stands in."""
        try:
            return part()
        except HostUnsupported as error:
            self._unsupported.append(error)
        except Exhausted as error:
            self._exhausted.append(error)
        return instead

    def add(self, findings: Iterable[Finding]) -> None:
        """Note what is missing."""
        self._unsupported += [
            HostUnsupported(found.capability, f"{found.field}: {found.why}", hint=found.hint)
            for found in findings
        ]

    def require_none(self) -> None:
        """End planning when anything was noted.

        Raises:
            HostUnsupported: the node lacks something; all of it.
            Exhausted: it has everything, and not enough of it left.
        """
        if self._unsupported:
            raise HostUnsupported.together(self._unsupported)
        if self._exhausted:
            raise self._exhausted[0]
