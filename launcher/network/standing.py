# SPDX-License-Identifier: Apache-2.0
"""Tables of ours in the node's network namespace that must stand, whoever flushes its ruleset.

The kernel tells of every change; what it names of ours is compared and made again. Tables that lie in
namespaces of instances are not watched: who flushes the node's ruleset does not reach them.
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Sequence
from typing import Final

from launcher.errors import LauncherError
from launcher.host.logging import get
from launcher.network import nft
from launcher.network.libnftables import NETLINK_NETFILTER
from launcher.network.nft import Table
from launcher.network.ruleset import TABLE, Command

log = get(__name__)

GROUP_NFTABLES: Final = 7
"""Linux, include/uapi/linux/netfilter/nfnetlink.h: NFNLGRP_NFTABLES."""
SETTLE_S: Final = 0.1
"""A flush comes as many messages; a transaction of our own may be half told."""
RETRY_S: Final = 5.0
MESSAGE_LIMIT: Final = 1 << 16

_OURS = re.compile(rb"\0(" + TABLE.encode() + rb"(?:_[0-9a-f-]{1,40})?)\0")


class Standing:
    """The tables with the commands that make each of their chains, called parts here."""

    def __init__(self) -> None:
        self._wanted: dict[Table, dict[str, tuple[Command, ...]]] = {}
        self._touched: set[str] = set()
        self._stir = asyncio.Event()
        self._busy = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._told: socket.socket | None = None

    async def keep(self, table: Table, part: str, network: str, commands: Sequence[Command]) -> None:
        """Make ``part`` of ``table`` and let it stand from now on; raises as ``nft.apply``."""
        self._watch()
        async with self._busy:
            await nft.apply(network, commands)
            self._wanted.setdefault(table, {})[part] = tuple(commands)

    def resume(self, table: Table, part: str, commands: Sequence[Command]) -> None:
        """Let what an earlier agent made stand from now on; what is missing of it is made soon."""
        self._watch()
        self._wanted.setdefault(table, {})[part] = tuple(commands)
        self._touch({table.name})

    def holds(self, table: Table, part: str, commands: Sequence[Command]) -> bool:
        """Whether exactly that stands already."""
        return self._wanted.get(table, {}).get(part) == tuple(commands)

    async def end(self, table: Table, part: str, network: str, removal: Sequence[Command]) -> None:
        """Let ``part`` of ``table`` stand no more: carry out ``removal``, if it is there, and
        remove the table when it holds nothing else."""
        async with self._busy:
            parts = self._wanted.get(table, {})
            parts.pop(part, None)
            if not parts:
                self._wanted.pop(table, None)
            found = await nft.look(table)
            if found is None:
                return
            if part in found.chains:
                await nft.apply(network, removal)
            if not set(found.chains) - {part}:
                whole = {"table": {"family": table.family, "name": table.name}}
                await nft.apply(network, [{"add": whole}, {"delete": whole}])

    async def close(self) -> None:
        """Watch nothing any more; the tables stay."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        if self._told is not None:
            asyncio.get_running_loop().remove_reader(self._told)
            self._told.close()
            self._told = None

    def _watch(self) -> None:
        if self._task is not None:
            return
        kind = socket.SOCK_RAW | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
        told = socket.socket(socket.AF_NETLINK, kind, NETLINK_NETFILTER)
        try:
            told.bind((0, 1 << (GROUP_NFTABLES - 1)))
        except OSError as error:
            told.close()
            log.warning("changes of nftables cannot be watched", error=str(error))
            return
        self._told = told
        asyncio.get_running_loop().add_reader(told, self._listen, told)
        self._task = asyncio.create_task(self._mend_for_ever(), name="nftables")

    def _listen(self, told: socket.socket) -> None:
        try:
            while message := told.recv(MESSAGE_LIMIT):
                names = {name.decode() for name in _OURS.findall(message)}
                self._touch(names)
        except BlockingIOError:
            return
        except OSError:  # ENOBUFS: some were lost
            self._touch({table.name for table in self._wanted})

    def _touch(self, names: set[str]) -> None:
        if names:
            self._touched |= names
            self._stir.set()

    async def _mend_for_ever(self) -> None:
        while True:
            await self._stir.wait()
            await asyncio.sleep(SETTLE_S)
            self._stir.clear()
            touched, self._touched = self._touched, set()
            for table in [table for table in self._wanted if table.name in touched]:
                try:
                    await self._mend(table)
                except LauncherError as error:
                    log.warning(f"{error}", table=table.name, retry_s=RETRY_S)
                    asyncio.get_running_loop().call_later(RETRY_S, self._touch, {table.name})

    async def _mend(self, table: Table) -> None:
        async with self._busy:
            parts = self._wanted.get(table, {})
            found = await nft.look(table)
            chains = found.chains if found is not None else {}
            for part, commands in parts.items():
                if chains.get(part) != _rules_of(part, commands):
                    log.warning("somebody removed rules of ours: they are made again", table=table.name)
                    await nft.apply("", commands)


def _rules_of(part: str, commands: Sequence[Command]) -> int:
    added = (command.get("add", {}).get("rule", {}) for command in commands)
    return sum(rule.get("chain") == part for rule in added)
