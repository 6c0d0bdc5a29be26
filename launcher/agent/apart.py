# SPDX-License-Identifier: Apache-2.0
"""Looks whether two instances would write the same file or device, whatever they call it. Changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from launcher.agent.records import InstanceRecord
from launcher.agent.volume_ledger import identified, opened, opened_by, require_free
from launcher.storage.identity import identities

LOOK_TIMEOUT_S = 20.0


async def require_apart(record: InstanceRecord, others: Iterable[InstanceRecord]) -> None:
    """Check that nobody else writes what ``record`` uses: links and device numbers are seen through.

    Raises:
        Conflict: naming volume, path and the other instance.
    """
    wanted = opened(record.plan, record.key)
    if not wanted:
        return
    held = [use for other in others if other.uid != record.uid for use in opened_by(other)]
    async with asyncio.timeout(LOOK_TIMEOUT_S):
        files = await asyncio.to_thread(identities, {use.path for use in (*wanted, *held)})
    require_free(identified(wanted, files), identified(held, files))
