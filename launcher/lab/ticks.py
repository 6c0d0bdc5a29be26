# SPDX-License-Identifier: Apache-2.0
"""Did the guest stand still, start anew, or run twice? Reads what consoles printed, and when. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

_TICK = re.compile(rb"tick (\d+)(?: uptime ([\d.]+))?\r?$")
_CRASH = re.compile(r"Kernel panic|\bBUG:|\bOops\b")
_STARTED = "GUEST UP"


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
    twice: tuple[int, ...]
    """Those that came more than once: two copies ran, or the guest went on from an older state of itself."""
    longest_gap_s: float
    gap_after: int
    """The tick after which the longest gap began."""

    def within(self, allowed_s: float) -> bool:
        """Whether every tick came once and no gap was longer."""
        return not self.missing and not self.twice and self.longest_gap_s <= allowed_s


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
    numbers = Counter(tick.number for tick in ticks)
    first, last = min(numbers), max(numbers)
    gap_s, after = max((later.at - earlier.at, earlier.number) for earlier, later in pairwise(ticks))
    return Continuity(
        first=first,
        last=last,
        missing=tuple(number for number in range(first, last + 1) if number not in numbers),
        twice=tuple(sorted(number for number, count in numbers.items() if count > 1)),
        longest_gap_s=gap_s,
        gap_after=after,
    )


def after_leaving(ticks: Sequence[Tick]) -> tuple[Tick, ...]:
    """The ticks of a node that the guest had left already: of one migration there must be none."""
    gone: set[str] = set()
    found = []
    for before, tick in pairwise(ticks):
        if tick.node != before.node:
            gone.add(before.node)
        if tick.node in gone:
            found.append(tick)
    return tuple(found)


def mishaps(lines: Iterable[str]) -> Iterator[str]:
    """What the guest says went wrong: memory or disk that is not as written, a crash, a second start."""
    starts = 0
    for line in lines:
        starts += line.startswith(_STARTED)
        if line.startswith("BAD") or _CRASH.search(line) or (starts > 1 and line.startswith(_STARTED)):
            yield line


def stamped(chunks: Sequence[Chunk]) -> Iterator[str]:
    """Each node's lines in order of time, each with the seconds since the first byte and its node."""
    begun = chunks[0].at if chunks else 0.0
    rests: dict[str, bytes] = {}
    for chunk in chunks:
        *complete, rests[chunk.node] = (rests.get(chunk.node, b"") + chunk.data).split(b"\n")
        for text in complete:
            line = text.decode(errors="replace").rstrip("\r")
            yield f"{chunk.at - begun:9.3f} {chunk.node} {line}"
    yield from (f"{'cut':>9} {node} {rest.decode(errors='replace')}" for node, rest in rests.items() if rest)
