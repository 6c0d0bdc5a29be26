# SPDX-License-Identifier: Apache-2.0
"""Watches the guests' servers and starts again what ended. The servers are nobody's children: a descriptor
of the process tells its end, at once."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Final

from launcher.errors import LauncherError
from launcher.host.logging import get
from launcher.plan.steps import ServeAddresses

log = get(__name__)

RETRY_MIN_S: Final = 1.0
RETRY_MAX_S: Final = 60.0
"""Back-off between attempts to start a server again."""

Serve = Callable[[ServeAddresses], Awaitable[int]]


class Supervision:
    """One watching task for each server; ``serve`` lets one run and returns its process id."""

    def __init__(self, serve: Serve) -> None:
        self._serve = serve
        self._watching: dict[str, asyncio.Task[None]] = {}

    async def keep(self, step: ServeAddresses) -> None:
        """Let the server run from now on; raises what ``serve`` raises."""
        self.let_go(step)
        pid = await self._serve(step)
        self._watching[step.directory] = asyncio.create_task(self._watch(step, pid), name=f"dnsmasq {pid}")

    def resume(self, step: ServeAddresses) -> None:
        """Let the server run again as soon as that is possible."""
        self.let_go(step)
        name = f"dnsmasq of {step.owner}"
        self._watching[step.directory] = asyncio.create_task(self._resume(step), name=name)

    def let_go(self, step: ServeAddresses) -> None:
        """Watch it no more."""
        task = self._watching.pop(step.directory, None)
        if task is not None:
            task.cancel()

    async def close(self) -> None:
        """Watch nothing any more; what runs goes on."""
        tasks = tuple(self._watching.values())
        self._watching.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _resume(self, step: ServeAddresses) -> None:
        await self._watch(step, await self._again(step))

    async def _watch(self, step: ServeAddresses, pid: int) -> None:
        while True:
            await _end_of(pid)
            log.warning("the server of a guest's addresses ended, starting it again", uid=step.owner, pid=pid)
            pid = await self._again(step)

    async def _again(self, step: ServeAddresses) -> int:
        delay_s = RETRY_MIN_S
        while True:
            try:
                return await self._serve(step)
            except LauncherError as error:
                log.warning(f"{error}", uid=step.owner, retry_s=delay_s)
            await asyncio.sleep(delay_s)
            delay_s = min(2 * delay_s, RETRY_MAX_S)


async def _end_of(pid: int) -> None:
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    try:
        loop.add_reader(descriptor, ended.set)
        await ended.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)
