# SPDX-License-Identifier: Apache-2.0
"""Tables of nftables, changed and looked at from asyncio: one transaction a call, in the agent's network
namespace or in another. No process is started."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from launcher.errors import TimedOut
from launcher.network.libnftables import NothingThere, carry_out
from launcher.network.namespace import inside
from launcher.network.ruleset import Command

T = TypeVar("T")
TIMEOUT_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Table:
    """Which table: a family of nftables and a name."""

    family: str
    name: str


@dataclass(frozen=True, slots=True)
class Found:
    """What a table holds: its chains, and how many rules each has."""

    chains: dict[str, int]


async def apply(network: str, commands: Sequence[Command], *, namespace: Path | None = None) -> None:
    """Carry out all of ``commands`` or none.

    Raises:
        NetworkError: the kernel refuses, in nftables' words.
        HostUnsupported: there is no nftables here.
        TimedOut: it did not end.
    """
    await _in_time(lambda: inside(namespace, lambda: carry_out(network, commands)))


async def look(table: Table, *, namespace: Path | None = None) -> Found | None:
    """What ``table`` holds; None: there is none. Raises as ``apply``."""
    return await _in_time(lambda: inside(namespace, lambda: _look(table)))


def _look(table: Table) -> Found | None:
    try:
        listed = carry_out("", [{"list": {"table": {"family": table.family, "name": table.name}}}])
    except NothingThere:
        return None
    chains = {str(one["chain"]["name"]): 0 for one in listed if "chain" in one}
    for one in listed:
        if "rule" in one:
            chains[str(one["rule"]["chain"])] += 1
    return Found(chains)


async def _in_time(work: Callable[[], T]) -> T:
    try:
        async with asyncio.timeout(TIMEOUT_S):
            return await asyncio.to_thread(work)
    except TimeoutError as error:
        raise TimedOut(f"nftables did not answer within {TIMEOUT_S:g} s") from error
