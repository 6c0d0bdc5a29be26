# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: N802 - the methods have their names on the wire
"""DrainService: a request becomes one call of the agent. Decides nothing itself."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import grpc

from launcher.agent.port import DrainPort, DrainRequest
from launcher.api.stream import closing
from launcher.v1 import drain_pb2 as pb
from launcher.v1.drain_pb2_grpc import DrainServiceServicer

Context = grpc.aio.ServicerContext[Any, Any]

_STATES = {
    "stays": pb.DrainResponse.STATE_STAYS,
    "moving": pb.DrainResponse.STATE_MOVING,
    "moved": pb.DrainResponse.STATE_MOVED,
    "would move": pb.DrainResponse.STATE_WOULD_MOVE,
}


class Drain(DrainServiceServicer):
    """Empties this node."""

    def __init__(self, drains: DrainPort) -> None:
        self._drains = drains

    async def Drain(self, request: pb.DrainRequest, context: Context) -> AsyncIterator[pb.DrainResponse]:
        """Each step as it happens."""
        asked = DrainRequest(
            targets=tuple(request.targets),
            instances=tuple(request.instances),
            dry_run=request.dry_run,
            undo=request.undo,
        )
        async with closing(self._drains.drain(asked)) as steps:
            async for step in steps:
                yield pb.DrainResponse(
                    namespace=step.namespace,
                    name=step.name,
                    state=_STATES[step.state],
                    target=step.target,
                    migration=step.migration,
                    reason=step.reason,
                    predicted_seconds=step.predicted_s,
                )
