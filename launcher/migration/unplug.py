# SPDX-License-Identifier: Apache-2.0
"""Asks a guest for the devices of its host that cannot move with it, before it moves. It plugs nothing.

Nobody has to remember what was taken: whichever side has the guest in the end looks at what it has, and plugs
what it should have. So a process that dies here leaves nothing to undo.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from launcher.errors import HypervisorUnavailable, LauncherError, NotFound
from launcher.hypervisor.port import DeviceKeptEvent, DeviceRemovedEvent, Event
from launcher.migration.attempt import Outgoing
from launcher.migration.clock import Clock
from launcher.migration.deadline import deadline
from launcher.migration.domains import Domains

UNPLUG_S = 30.0
"""So long a guest has to give its devices back; KubeVirt gives it as long."""
LOOK_AGAIN_S = 1.0
ASK_AGAIN_S = 10.0
"""A guest that just boots does not hear the first request. QEMU takes no second one within 5 s."""
CALL_DEADLINE_S = 15.0
"""libvirt waits 5 s of it for the guest."""
_PREFIX = "ua-"


class Unplugging:
    """The devices of one guest that are to go."""

    def __init__(
        self,
        hypervisor: Domains,
        clock: Clock,
        outgoing: Outgoing,
    ) -> None:
        self._hypervisor = hypervisor
        self._clock = clock
        self._uuid = outgoing.uuid
        self._aliases = outgoing.unplug
        self._paused = outgoing.user_paused
        self._refused: set[str] = set()
        self._happened = asyncio.Event()
        self._last = ""

    def _on_event(self, event: Event) -> None:
        if not isinstance(event, DeviceRemovedEvent | DeviceKeptEvent) or event.uuid != self._uuid:
            return
        if isinstance(event, DeviceKeptEvent):
            self._refused.add(event.alias.removeprefix(_PREFIX))
        self._happened.set()

    async def there(self) -> tuple[str, ...]:
        """The devices that the guest still has; raises LauncherError."""
        async with deadline("looking for devices", CALL_DEADLINE_S):
            return await self._hypervisor.plugged(self._uuid, self._aliases)

    async def take(self, wanted: Callable[[], bool]) -> str:
        """Ask until the guest has none of them any more; empty then, else why not.

        It ends early, with an empty text, when ``wanted`` no longer holds. A paused guest is not asked:
        it would not hear it.

        Raises:
            HypervisorUnavailable, NotFound: there is nobody to ask.
        """
        unsubscribe = self._hypervisor.subscribe(self._on_event)
        try:
            return await self._take(wanted)
        finally:
            unsubscribe()

    async def _take(self, wanted: Callable[[], bool]) -> str:
        began = self._clock.monotonic()
        asked_at: float | None = None
        while wanted():
            left: tuple[str, ...] = self._aliases
            try:
                left = await self.there()
                if not left:
                    return ""
                if self._paused:
                    return f"the guest is paused and cannot give {', '.join(left)} back: unpause it first"
                now = self._clock.monotonic()
                if now - began >= UNPLUG_S:
                    return self._why(left)
                if asked_at is None or now - asked_at >= ASK_AGAIN_S:
                    asked_at = now
                    await self._ask(left)
                    continue  # It may be gone by now: asking waits for that.
            except (HypervisorUnavailable, NotFound):
                raise
            except LauncherError as error:
                self._last = str(error)
                if self._clock.monotonic() - began >= UNPLUG_S:
                    return self._why(left)
            await self._pause()
        return ""

    async def _pause(self) -> None:
        """Until something happens, or it is time to look again."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LOOK_AGAIN_S):
                await self._happened.wait()
        self._happened.clear()

    async def _ask(self, aliases: tuple[str, ...]) -> None:
        for alias in aliases:
            try:
                async with deadline(f"asking the guest for {alias}", CALL_DEADLINE_S):
                    await self._hypervisor.ask_back(self._uuid, alias)
            except (HypervisorUnavailable, NotFound):
                raise
            except LauncherError as error:
                self._last = str(error)  # It was asked, or is being asked: the next look tells.

    def _why(self, left: tuple[str, ...]) -> str:
        names = ", ".join(left)
        refused = sorted(self._refused.intersection(left))
        text = f"the guest did not give {names} back within {UNPLUG_S:.0f} s"
        if refused:
            text += f"; it refused {', '.join(refused)}: in use there"
        return f"{text}; {self._last}" if self._last else text
