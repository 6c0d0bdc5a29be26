# SPDX-License-Identifier: Apache-2.0
"""Did the guest stand still? Reads ticks out of what consoles printed, and when. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

_TICK = re.compile(rb"tick (\d+)(?: uptime ([\d.]+))?\r?$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Bytes that appeared on the console of ``node`` at ``at`` (monotonic seconds)."""

    at: float
    node: str
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """One tick: its number, the guest's uptime if it said so, when its line was complete, and where."""

    number: int
    uptime: str
    at: float
    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Continuity:
    """What the ticks say. A guest that never stood still has no missing tick and a gap of one period."""

    first: int
    last: int
    missing: tuple[int, ...]
    longest_gap_s: float
    gap_after: int
    """The tick after which the longest gap began."""

    def within(self, allowed_s: float) -> bool:
        """Whether every tick is there and no gap was longer."""
        return not self.missing and self.longest_gap_s <= allowed_s


def parse(chunks: Iterable[Chunk]) -> tuple[Tick, ...]:
    """The ticks in ``chunks``, which are in order of time.

    All nodes' bytes are one stream: a line may begin on the source and end on the target.
    """
    found: list[Tick] = []
    line = b""
    for chunk in chunks:
        *complete, rest = (line + chunk.data).split(b"\n")
        for text in complete:
            match = _TICK.search(text)
            if match:
                uptime = (match[2] or b"").decode()
                found.append(Tick(number=int(match[1]), uptime=uptime, at=chunk.at, node=chunk.node))
        line = rest
    return tuple(found)


def continuity(ticks: Sequence[Tick]) -> Continuity | None:
    """What two or more ticks say; None for fewer."""
    if len(ticks) < 2:
        return None
    numbers = {tick.number for tick in ticks}
    first, last = min(numbers), max(numbers)
    gap_s, after = max((later.at - earlier.at, earlier.number) for earlier, later in pairwise(ticks))
    return Continuity(
        first=first,
        last=last,
        missing=tuple(number for number in range(first, last + 1) if number not in numbers),
        longest_gap_s=gap_s,
        gap_after=after,
    )
