# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: N802 - the methods have their names on the wire
"""BackupService: each method turns a request into one call of the agent. Decides nothing itself."""

from __future__ import annotations

from typing import Any

import grpc
import msgspec

from launcher.agent.port import BackupPort, BackupRequest, CopyView
from launcher.api import convert
from launcher.errors import InvalidRequest, Violation
from launcher.v1 import backups_pb2 as pb
from launcher.v1.backups_pb2_grpc import BackupServiceServicer

Context = grpc.aio.ServicerContext[Any, Any]


class Backups(BackupServiceServicer):
    """Copies of this node's guests."""

    def __init__(self, backups: BackupPort) -> None:
        self._backups = backups

    async def FreezeInstance(
        self, request: pb.FreezeInstanceRequest, context: Context
    ) -> pb.FreezeInstanceResponse:
        """Freeze a guest's file systems."""
        await self._backups.freeze(
            *convert.key(request), unfreeze_after_s=float(request.unfreeze_timeout_seconds)
        )
        return pb.FreezeInstanceResponse()

    async def UnfreezeInstance(
        self, request: pb.UnfreezeInstanceRequest, context: Context
    ) -> pb.UnfreezeInstanceResponse:
        """Thaw them."""
        await self._backups.unfreeze(*convert.key(request))
        return pb.UnfreezeInstanceResponse()

    async def CreateSnapshot(
        self, request: pb.CreateSnapshotRequest, context: Context
    ) -> pb.CreateSnapshotResponse:
        """Begin a snapshot."""
        found = await self._backups.create_snapshot(
            *convert.key(request),
            name=request.snapshot,
            volumes=tuple(request.volumes),
            quiesce=not request.skip_quiesce,
        )
        return pb.CreateSnapshotResponse(snapshot=copy(found))

    async def ListSnapshots(
        self, request: pb.ListSnapshotsRequest, context: Context
    ) -> pb.ListSnapshotsResponse:
        """All, or those of one namespace or instance."""
        found = await self._backups.list_snapshots(request.namespace or None, request.name)
        return pb.ListSnapshotsResponse(snapshots=map(copy, found))

    async def DeleteSnapshot(
        self, request: pb.DeleteSnapshotRequest, context: Context
    ) -> pb.DeleteSnapshotResponse:
        """Remove one."""
        namespace, name = convert.key(request)
        await self._backups.delete_snapshot(namespace, name, required("snapshot", request.snapshot))
        return pb.DeleteSnapshotResponse()

    async def BeginBackup(self, request: pb.BeginBackupRequest, context: Context) -> pb.BeginBackupResponse:
        """Begin a backup."""
        wanted = BackupRequest(
            name=request.backup,
            mode=request.mode or "push",
            directory=request.directory,
            destination=request.destination,
            listen=request.listen,
            incremental=request.incremental,
            volumes=tuple(request.volumes),
            quiesce=not request.skip_quiesce,
            deadline_s=request.deadline_seconds,
        )
        return pb.BeginBackupResponse(
            backup=copy(await self._backups.begin_backup(*convert.key(request), wanted))
        )

    async def ListBackups(self, request: pb.ListBackupsRequest, context: Context) -> pb.ListBackupsResponse:
        """All, or those of one namespace or instance."""
        found = await self._backups.list_backups(request.namespace or None, request.name)
        return pb.ListBackupsResponse(backups=map(copy, found))

    async def EndBackup(self, request: pb.EndBackupRequest, context: Context) -> pb.EndBackupResponse:
        """End or abort one."""
        name = required("backup", request.backup)
        ended = await self._backups.end_backup(*convert.key(request), name, abort=request.abort)
        return pb.EndBackupResponse(backup=copy(ended))

    async def ListCheckpoints(
        self, request: pb.ListCheckpointsRequest, context: Context
    ) -> pb.ListCheckpointsResponse:
        """All, or those of one namespace or instance."""
        found = await self._backups.list_checkpoints(request.namespace or None, request.name)
        return pb.ListCheckpointsResponse(
            checkpoints=[pb.Checkpoint(**msgspec.structs.asdict(view)) for view in found]
        )

    async def DeleteCheckpoint(
        self, request: pb.DeleteCheckpointRequest, context: Context
    ) -> pb.DeleteCheckpointResponse:
        """Forget one."""
        name = required("checkpoint", request.checkpoint)
        await self._backups.delete_checkpoint(*convert.key(request), name)
        return pb.DeleteCheckpointResponse()

    async def DumpMemory(self, request: pb.DumpMemoryRequest, context: Context) -> pb.DumpMemoryResponse:
        """Begin a dump of a guest's memory."""
        binding = convert.claim_binding(request.binding) if request.HasField("binding") else None
        vmi = await self._backups.dump_memory(
            *convert.key(request), claim=request.claim, binding=binding, volume=request.volume
        )
        return pb.DumpMemoryResponse(instance=convert.struct(vmi))

    async def ForgetMemoryDump(
        self, request: pb.ForgetMemoryDumpRequest, context: Context
    ) -> pb.ForgetMemoryDumpResponse:
        """Show the last dump no more."""
        vmi = await self._backups.forget_memory_dump(*convert.key(request))
        return pb.ForgetMemoryDumpResponse(instance=convert.struct(vmi))


def copy(view: CopyView) -> pb.Copy:
    """A snapshot or backup."""
    return pb.Copy(
        kind=view.kind,
        name=view.name,
        namespace=view.namespace,
        vmi=view.vmi,
        vmi_uid=view.vmi_uid,
        phase=view.phase,
        message=view.message,
        mode=view.mode,
        indications=view.indications,
        volumes=[
            pb.CopiedVolume(
                volume=volume.volume,
                target=volume.target,
                file=volume.file,
                export=volume.export,
                bitmap=volume.bitmap,
            )
            for volume in view.volumes
        ],
        incremental=view.incremental,
        checkpoint=view.checkpoint,
        endpoint=view.endpoint,
        created=view.created,
        ended=view.ended,
        processed_bytes=view.processed,
        total_bytes=view.total,
    )


def required(field: str, value: str) -> str:
    """``value`` unless it is empty; raises InvalidRequest then."""
    if not value:
        raise InvalidRequest(
            [Violation(field=field, type="FieldValueRequired", message="must name the object")]
        )
    return value
