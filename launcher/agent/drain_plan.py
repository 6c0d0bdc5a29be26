# SPDX-License-Identifier: Apache-2.0
"""What a drain does with an instance, in which order, and to which node it goes. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from launcher.agent.records import InstanceRecord
from launcher.units import human_bytes

STRATEGIES = ("None", "LiveMigrate", "LiveMigrateIfPossible", "External")
"""The API's values of ``spec.evictionStrategy``."""
MOVED_BY_US = frozenset({"LiveMigrate", "LiveMigrateIfPossible"})
USUAL_BPS = 110 * 10**6
"""What a link of 1 Gbit/s carries, where nothing is known of it: only the order depends on it."""


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A node that guests may go to. ``memory_left`` None: not known; ``why`` it takes none, or empty."""

    name: str
    memory_left: int | None = None
    inbound_left: int = 1
    why: str = ""


class Leaving(msgspec.Struct, frozen=True, kw_only=True):
    """An instance that is to be moved: what it reserves there, and how long that will take, in seconds."""

    key: str
    memory: int
    predicted_s: float


def stays(record: InstanceRecord, *, unset: str) -> str:
    """Why a drain leaves an instance alone, empty when it is to be moved.

    ``unset`` is the strategy of an instance that names none.
    """
    strategy = record.defaulted.spec.eviction_strategy or unset
    if record.desired == "deleted":
        return "it is being deleted"
    if record.phase != "Running":
        return f"it does not run yet: it is {record.phase}"
    if strategy == "External":
        return "evictionStrategy External: status.evacuationNodeName tells whoever moves it"
    if strategy not in MOVED_BY_US:
        return f"evictionStrategy {strategy or 'None'}: stop it, or delete it"
    return ""


def is_there(record: InstanceRecord) -> bool:
    """Whether a node with this instance is not empty."""
    return not record.incoming and not record.moved_to and record.phase not in ("Succeeded", "Failed")


def predicted_s(size: int, *, cap: int, link: int) -> float:
    """Seconds that copying ``size`` bytes once takes; ``cap`` and ``link`` a second; 0: not known."""
    rates = [rate for rate in (cap, link) if rate]
    return size / (min(rates) if rates else USUAL_BPS)


def in_order(leaving: Iterable[Leaving]) -> tuple[Leaving, ...]:
    """Longest first: what is long and begins last would be waited for alone."""
    return tuple(sorted(leaving, key=lambda one: (-one.predicted_s, one.key)))


def choose(wanted: int, nodes: Sequence[Candidate], given: dict[str, int], tried: Iterable[str]) -> str:
    """The node with most memory left for ``wanted`` bytes; of equals, the one that was given least.

    ``given`` counts what each got already (those under way are in no node's figures yet), ``tried`` are nodes
    that refused. Empty: none.
    """
    left = [node for node in nodes if node.name not in tried and not node.why]
    fits = [n for n in left if n.memory_left is None or n.memory_left >= wanted]
    free = [node for node in fits if node.inbound_left > 0] or fits

    def rank(node: Candidate) -> tuple[float, int, int]:
        room = float("inf") if node.memory_left is None else node.memory_left
        return (-room, given.get(node.name, 0), nodes.index(node))

    return min(free, key=rank).name if free else ""


def refusals(wanted: int, nodes: Sequence[Candidate], tried: dict[str, str]) -> str:
    """Why no node took an instance, node by node."""
    if not nodes:
        return "there is no node to go to: none is named, and this node has no peers"
    said = []
    for node in nodes:
        if node.name in tried:
            said.append(f"{node.name}: {tried[node.name]}")
        elif node.why:
            said.append(f"{node.name}: {node.why}")
        elif node.memory_left is not None and node.memory_left < wanted:
            left = human_bytes(node.memory_left)
            said.append(f"{node.name}: {left} of memory left, {human_bytes(wanted)} needed")
    return "; ".join(said) or "no node took it"
