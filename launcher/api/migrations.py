# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: N802 - the methods have their names on the wire
"""MigrationService: each method turns a request into one call of the agent. Decides nothing itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc

from launcher.agent.port import AgentPort
from launcher.api import convert, manifest
from launcher.api.stream import closing
from launcher.units import KIB
from launcher.v1 import migrations_pb2 as pb
from launcher.v1.migrations_pb2_grpc import MigrationServiceServicer

RECORDING_PIECE = 256 * KIB

Context = grpc.aio.ServicerContext[Any, Any]


class Migrations(MigrationServiceServicer):
    """The migrations away from this node."""

    def __init__(self, agent: AgentPort) -> None:
        self._agent = agent

    async def CreateMigration(
        self, request: pb.CreateMigrationRequest, context: Context
    ) -> pb.CreateMigrationResponse:
        """Validate, then hand over."""
        vmim = await asyncio.to_thread(manifest.migration, request, request.WhichOneof("manifest"))
        created = await self._agent.create_migration(vmim, target=request.target)
        return pb.CreateMigrationResponse(migration=convert.struct(created))

    async def GetMigration(
        self, request: pb.GetMigrationRequest, context: Context
    ) -> pb.GetMigrationResponse:
        """One migration."""
        view = await self._agent.get_migration(*convert.key(request))
        return pb.GetMigrationResponse(migration=convert.migration(view))

    async def ListMigrations(
        self, request: pb.ListMigrationsRequest, context: Context
    ) -> pb.ListMigrationsResponse:
        """All migrations, or those of one namespace."""
        views = await self._agent.list_migrations(request.namespace or None)
        return pb.ListMigrationsResponse(migrations=[convert.migration(view) for view in views])

    async def WatchMigration(
        self, request: pb.WatchMigrationRequest, context: Context
    ) -> AsyncIterator[pb.WatchMigrationResponse]:
        """One migration until its end."""
        async with closing(self._agent.watch_migration(*convert.key(request))) as views:
            async for view in views:
                yield pb.WatchMigrationResponse(migration=convert.migration(view))

    async def WatchMigrations(
        self, request: pb.WatchMigrationsRequest, context: Context
    ) -> AsyncIterator[pb.WatchMigrationsResponse]:
        """What there is, a bookmark, then every change."""
        async with closing(self._agent.watch_migrations(request.namespace or None)) as events:
            async for event in events:
                yield pb.WatchMigrationsResponse(
                    type=convert.EVENT_TYPES[event.type],
                    version=event.version,
                    migration=None if event.object is None else convert.migration(event.object),
                )

    async def CancelMigration(
        self, request: pb.CancelMigrationRequest, context: Context
    ) -> pb.CancelMigrationResponse:
        """Ask it to stop."""
        view = await self._agent.cancel_migration(*convert.key(request))
        return pb.CancelMigrationResponse(migration=convert.migration(view))

    async def RecoverMigration(
        self, request: pb.RecoverMigrationRequest, context: Context
    ) -> pb.RecoverMigrationResponse:
        """Try again what was given up."""
        view = await self._agent.recover_migration(*convert.key(request))
        return pb.RecoverMigrationResponse(migration=convert.migration(view))

    async def DeleteMigration(
        self, request: pb.DeleteMigrationRequest, context: Context
    ) -> pb.DeleteMigrationResponse:
        """Forget it."""
        view = await self._agent.delete_migration(*convert.key(request))
        return pb.DeleteMigrationResponse(migration=convert.migration(view))

    async def GetRecording(
        self, request: pb.GetRecordingRequest, context: Context
    ) -> AsyncIterator[pb.GetRecordingResponse]:
        """What it saw and decided, in pieces."""
        lines = await self._agent.migration_recording(*convert.key(request), attempt=request.attempt)
        for start in range(0, len(lines), RECORDING_PIECE):
            yield pb.GetRecordingResponse(data=lines[start : start + RECORDING_PIECE])
