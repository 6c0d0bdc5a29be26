# SPDX-License-Identifier: Apache-2.0
"""A migration waits until an instance has no utility volumes any more: no dump or backup loses its place.

Who added them takes them away again; nothing is taken away here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from launcher.agent.machine import Machine
from launcher.errors import TimedOut


async def released(
    machine: Machine, *, within_s: float, at_once: asyncio.Event, tell: Callable[[str], Awaitable[None]]
) -> str:
    """Wait until the utility volumes have left, or ``at_once`` is set; why it cannot go on, else empty.

    ``tell`` is told what is waited for, and nothing when it is over. An agent that restarts waits anew.
    """
    if at_once.is_set() or not _names(machine):
        return ""
    await tell(f"waits for utility volumes to be removed: {', '.join(_names(machine))}")
    waiting = asyncio.create_task(_until_released(machine, within_s), name="release of utility volumes")
    hurry = asyncio.create_task(at_once.wait(), name="end of the wait for utility volumes")
    try:
        await asyncio.wait({waiting, hurry}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
        hurry.cancel()
    names = _names(machine)
    await tell("")
    if at_once.is_set() or not names or machine.gone:
        return ""
    return (
        f"utility volumes are still there after {within_s:.0f} s (utilityVolumesTimeout): {', '.join(names)}"
    )


async def _until_released(machine: Machine, within_s: float) -> None:
    with suppress(TimedOut):
        await machine.until(lambda m: not _names(m), timeout_s=within_s)


def _names(machine: Machine) -> tuple[str, ...]:
    return tuple(volume.name for volume in machine.record.defaulted.spec.utility_volumes)
