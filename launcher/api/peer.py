# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: N802 - the methods have their names on the wire
"""PeerService: what another node's agent may ask. Serves only callers that the transport vouches for."""

from __future__ import annotations

from typing import Any

import grpc

from launcher.agent.port import AgentPort
from launcher.api import convert
from launcher.errors import Denied
from launcher.v1 import peer_pb2 as pb
from launcher.v1.peer_pb2_grpc import PeerServiceServicer

Context = grpc.aio.ServicerContext[Any, Any]


class Peer(PeerServiceServicer):
    """The target's side of migrations to this node."""

    def __init__(self, agent: AgentPort) -> None:
        self._agent = agent

    async def PrepareMigration(
        self, request: pb.PrepareMigrationRequest, context: Context
    ) -> pb.PrepareMigrationResponse:
        """Check and reserve."""
        _require_peer(context)
        reply = await self._agent.prepare_migration(convert.prepare_request(request))
        return convert.prepare_reply(reply)

    async def FinishMigration(
        self, request: pb.FinishMigrationRequest, context: Context
    ) -> pb.FinishMigrationResponse:
        """Adopt or release."""
        _require_peer(context)
        state = await self._agent.finish_migration(
            convert.attempt(request.attempt),
            succeeded=request.succeeded,
            reason=request.reason,
            reclaim=request.reclaim,
            discard=request.discard,
        )
        return pb.FinishMigrationResponse(state=convert.target_state(state))

    async def InterruptPostCopy(
        self, request: pb.InterruptPostCopyRequest, context: Context
    ) -> pb.InterruptPostCopyResponse:
        """Cut a stream that is dead."""
        _require_peer(context)
        state = await self._agent.interrupt_migration(convert.attempt(request.attempt))
        return pb.InterruptPostCopyResponse(state=convert.target_state(state))

    async def ReopenPostCopy(
        self, request: pb.ReopenPostCopyRequest, context: Context
    ) -> pb.ReopenPostCopyResponse:
        """Wait for a new stream."""
        _require_peer(context)
        state = await self._agent.interrupt_migration(convert.attempt(request.attempt), reopen=True)
        return pb.ReopenPostCopyResponse(state=convert.target_state(state))

    async def GetCapacity(self, request: pb.GetCapacityRequest, context: Context) -> pb.GetCapacityResponse:
        """What is left here."""
        _require_peer(context)
        found = await self._agent.drains.capacity()
        return pb.GetCapacityResponse(
            memory_left_bytes=found.memory_left, inbound_left=found.inbound_left, why=found.why
        )

    async def GetMigrationState(
        self, request: pb.GetMigrationStateRequest, context: Context
    ) -> pb.GetMigrationStateResponse:
        """What this node knows of an attempt."""
        _require_peer(context)
        state = await self._agent.migration_state(convert.attempt(request.attempt))
        return pb.GetMigrationStateResponse(state=convert.target_state(state))


def _require_peer(context: Context) -> None:
    """A certificate over TCP, or a unix socket (guarded by its file mode).

    Raises:
        Denied: neither.
    """
    certified = bool(context.auth_context().get("x509_pem_cert"))
    if not certified and not context.peer().startswith("unix:"):
        raise Denied("only peers with a certificate may ask for this", hint="use mutual TLS")
