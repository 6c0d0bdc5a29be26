# SPDX-License-Identifier: Apache-2.0
"""Tells a target until it has heard it that a guest stayed on its source, or was given up. Decides nothing.

A target that did not answer at the end of a migration may still come to run the copy that it was sent.
"""

from __future__ import annotations

import asyncio

from launcher.errors import LauncherError
from launcher.migration.attempt import AttemptRecord
from launcher.migration.peer import Peer
from launcher.migration.resolve import heard

PAUSES_S = (*(1.0 for _ in range(10)), *(10.0 for _ in range(360)))
"""For an hour. A node that comes back later has rebooted, or its reservation ran out long ago."""


async def remind(attempt: AttemptRecord, peer: Peer) -> None:
    """Return when the target has nothing of the guest, or after an hour."""
    for pause_s in PAUSES_S:
        await asyncio.sleep(pause_s)
        try:
            answers = [
                await peer.finish(
                    token,
                    succeeded=False,
                    reason=attempt.reason,
                    reclaim=not attempt.discarded,
                    discard=attempt.discarded,
                )
                for token in attempt.tokens
            ]
        except LauncherError:
            continue
        if all(map(heard, answers)):
            return
