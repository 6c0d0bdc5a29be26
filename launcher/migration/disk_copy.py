# SPDX-License-Identifier: Apache-2.0
"""Disks of a running guest that are copied to other places on their own node: what to do next. Pure.

libvirt's live XML is the truth: it names what each disk is made of, and where it is being copied to. A copy
is pivoted only while libvirt still has its job, so never twice; what was pivoted shows by its source. All
disks are copied before the first one is pivoted. From then on it is too late to cancel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

MOST_BEGINS = 3
"""A copy that was begun and is not there may never have been begun, if the agent was killed just then."""
MOST_PIVOTS = 3

State = Literal["wanted", "begun", "pivoting", "moved", "left"]


class DiskCopy(msgspec.Struct, frozen=True, kw_only=True):
    """The copy of one disk. ``bytes`` are what the guest sees of it, ``slice`` those of a larger device that
    it goes on to see (0: all). ``state`` is written before what it says is done: ``left`` stays where it was.
    """

    volume: str
    target: str
    source: str
    destination: str
    block: bool = False
    bytes: int = 0
    slice: int = 0
    state: State = "wanted"
    begins: int = 0
    pivots: int = 0
    why: str = ""


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """A disk in the live XML, or in the definition of a guest that ended: its source, and its copy."""

    source: str
    copy_to: str = ""
    copy_ready: str = ""


@dataclass(frozen=True, slots=True)
class Begin:
    """Begin to copy the disk."""

    copy: DiskCopy


@dataclass(frozen=True, slots=True)
class Pivot:
    """Let the guest write to the copy from now on."""

    copy: DiskCopy


@dataclass(frozen=True, slots=True)
class Drop:
    """End the copy; the guest stays where it is."""

    copy: DiskCopy


@dataclass(frozen=True, slots=True)
class Next:
    """The copies as they are now, and what to do: nothing is ``wait`` or, with ``ended``, the end."""

    copies: tuple[DiskCopy, ...]
    action: Begin | Pivot | Drop | None = None
    ended: bool = False


def next_step(
    copies: Sequence[DiskCopy],
    seen: Mapping[str, Seen],
    *,
    give_up: str = "",
    issued: frozenset[str] = frozenset(),
) -> Next:
    """Compare and decide. ``give_up`` is why the copies are to end, if they are; ``issued`` are the volumes
    whose copies this process has begun: one that is gone has failed."""
    now = tuple(_looked_at(copy, seen.get(copy.volume), issued) for copy in copies)
    failed = next((copy.why for copy in now if copy.state == "left"), "")
    committed = any(copy.state in ("pivoting", "moved") for copy in now)
    if not committed and (give_up or failed):
        running = next((copy for copy in now if _runs(copy, seen)), None)
        if running is None:
            return Next(tuple(_left(copy, give_up or failed) for copy in now), ended=True)
        return Next(now, None if _ending(running, seen) else Drop(running))
    for copy in now:
        if copy.state == "wanted" and not committed:
            return Next(now, Begin(copy))
    if not committed and not all(seen[copy.volume].copy_ready == "yes" for copy in now):
        return Next(now)
    return _pivots(now, seen)


def begun(copies: Sequence[DiskCopy], copy: DiskCopy) -> tuple[DiskCopy, ...]:
    """``copies`` when ``copy`` is to begin now."""
    return _with(copies, msgspec.structs.replace(copy, state="begun", begins=copy.begins + 1))


def pivoting(copies: Sequence[DiskCopy], copy: DiskCopy) -> tuple[DiskCopy, ...]:
    """``copies`` when ``copy`` is to be pivoted now."""
    return _with(copies, msgspec.structs.replace(copy, state="pivoting", pivots=copy.pivots + 1))


def failed(copies: Sequence[DiskCopy], copy: DiskCopy, why: str) -> tuple[DiskCopy, ...]:
    """``copies`` when ``copy`` could not be begun."""
    return _with(copies, _left(copy, why))


def _pivots(now: tuple[DiskCopy, ...], seen: Mapping[str, Seen]) -> Next:
    for copy in now:
        if copy.state in ("moved", "left") or not _runs(copy, seen):
            continue
        if _ending(copy, seen):
            return Next(now)
        if copy.pivots >= MOST_PIVOTS:
            return Next(_with(now, _left(copy, "QEMU did not change over to it")), Drop(copy))
        if seen[copy.volume].copy_ready == "yes":
            return Next(now, Pivot(copy))
        return Next(now)
    still = next((copy for copy in now if copy.state == "left" and _runs(copy, seen)), None)
    if still is not None:
        return Next(now, None if _ending(still, seen) else Drop(still))
    rest = "another disk was changed over, and the copy of this one is not there"
    return Next(tuple(copy if copy.state == "moved" else _left(copy, rest) for copy in now), ended=True)


def _looked_at(copy: DiskCopy, seen: Seen | None, issued: frozenset[str]) -> DiskCopy:
    if seen is not None and not seen.copy_to and seen.source == copy.destination:
        # Also what was given up: a call that did not return in time may take effect later.
        return msgspec.structs.replace(copy, state="moved", why="")
    if copy.state in ("moved", "left"):
        return copy
    if seen is None:
        return _left(copy, "the guest has no such disk any more")
    if seen.copy_to:
        if seen.copy_to != copy.destination:
            return _left(copy, f"it is being copied to {seen.copy_to} by somebody else")
        return copy if copy.state != "wanted" else msgspec.structs.replace(copy, state="begun")
    if seen.source != copy.source:
        return _left(copy, f"its image is {seen.source} by now")
    if copy.state == "pivoting":
        return _left(copy, "QEMU gave up the copy when it was to change over to it")
    if copy.state == "begun":
        if copy.volume in issued or copy.begins >= MOST_BEGINS:
            return _left(copy, "QEMU gave up the copy: an error of one of the images, or no room")
        return msgspec.structs.replace(copy, state="wanted")
    return copy


def _runs(copy: DiskCopy, seen: Mapping[str, Seen]) -> bool:
    disk = seen.get(copy.volume)
    return disk is not None and disk.copy_to == copy.destination


def _ending(copy: DiskCopy, seen: Mapping[str, Seen]) -> bool:
    return seen[copy.volume].copy_ready in ("pivot", "abort")


def _left(copy: DiskCopy, why: str) -> DiskCopy:
    return copy if copy.state == "left" else msgspec.structs.replace(copy, state="left", why=why)


def _with(copies: Sequence[DiskCopy], changed: DiskCopy) -> tuple[DiskCopy, ...]:
    return tuple(changed if copy.volume == changed.volume else copy for copy in copies)
