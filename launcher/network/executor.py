# SPDX-License-Identifier: Apache-2.0
"""Makes and releases the network steps of a plan. Each can be made twice and released twice."""

from __future__ import annotations

import asyncio

from launcher.errors import Bug
from launcher.plan.steps import AnyStep, CreateTap

NETWORK_STEPS = (CreateTap,)


class NetworkExecutor:
    """Taps of the namespace the agent runs in. pyroute2 is loaded with the first tap: it costs 24 MiB."""

    async def make(self, step: AnyStep) -> None:
        """Bring ``step`` about; raises NetworkError."""
        if not isinstance(step, CreateTap):
            raise Bug(f"{type(step).__name__} is not a network step")
        from launcher.network.tap import create_tap

        await asyncio.to_thread(create_tap, step)

    async def release(self, step: AnyStep) -> None:
        """Undo ``step``; what is already gone is fine."""
        if isinstance(step, CreateTap):
            from launcher.network.tap import delete_tap

            await asyncio.to_thread(delete_tap, step)
