# SPDX-License-Identifier: Apache-2.0
"""Calls of BackupService for ``client.Client``. Messages are those on the wire; errors are ours."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import grpc

from launcher.cli.transport import Transport
from launcher.errors import NotFound, TimedOut
from launcher.rpc.struct import to_plain
from launcher.v1 import backups_pb2 as pb
from launcher.v1.backups_pb2_grpc import BackupServiceStub
from launcher.v1.types_pb2 import ClaimBinding

ENDED = ("Succeeded", "Failed")
"""Phases that are the last."""
POLL_S = 0.3


class Backups:
    """Calls of BackupService. ``namespace`` empty: "default" (in lists: all); ``name`` is the instance's."""

    def __init__(self, channel: grpc.Channel, transport: Transport) -> None:
        self._stub = BackupServiceStub(channel)
        self._transport = transport

    def freeze(self, name: str, *, unfreeze_timeout_s: int = 0, namespace: str = "") -> None:
        """Freeze the guest's file systems, for at most that long (0: until they are thawed)."""
        request = pb.FreezeInstanceRequest(
            namespace=namespace, name=name, unfreeze_timeout_seconds=unfreeze_timeout_s
        )
        self._transport.call(self._stub.FreezeInstance, request)

    def unfreeze(self, name: str, *, namespace: str = "") -> None:
        """Thaw the guest's file systems."""
        request = pb.UnfreezeInstanceRequest(namespace=namespace, name=name)
        self._transport.call(self._stub.UnfreezeInstance, request)

    def create_snapshot(
        self,
        name: str,
        *,
        snapshot: str = "",
        volumes: Sequence[str] = (),
        skip_quiesce: bool = False,
        namespace: str = "",
    ) -> pb.Copy:
        """Begin a snapshot."""
        request = pb.CreateSnapshotRequest(
            namespace=namespace, name=name, snapshot=snapshot, volumes=volumes, skip_quiesce=skip_quiesce
        )
        return self._transport.call(self._stub.CreateSnapshot, request).snapshot

    def snapshots(self, name: str = "", *, namespace: str = "") -> list[pb.Copy]:
        """The snapshots of an instance, or all."""
        request = pb.ListSnapshotsRequest(namespace=namespace, name=name)
        return list(self._transport.call(self._stub.ListSnapshots, request).snapshots)

    def delete_snapshot(self, name: str, snapshot: str, *, namespace: str = "") -> None:
        """Remove a snapshot with its files."""
        request = pb.DeleteSnapshotRequest(namespace=namespace, name=name, snapshot=snapshot)
        self._transport.call(self._stub.DeleteSnapshot, request)

    def begin_backup(
        self,
        name: str,
        *,
        backup: str = "",
        mode: str = "push",
        directory: str = "",
        destination: str = "",
        listen: str = "",
        incremental: str = "",
        volumes: Sequence[str] = (),
        skip_quiesce: bool = False,
        deadline_s: int = 0,
        namespace: str = "",
    ) -> pb.Copy:
        """Begin a backup."""
        request = pb.BeginBackupRequest(
            namespace=namespace,
            name=name,
            backup=backup,
            mode=mode,
            directory=directory,
            destination=destination,
            listen=listen,
            incremental=incremental,
            volumes=volumes,
            skip_quiesce=skip_quiesce,
            deadline_seconds=deadline_s,
        )
        return self._transport.call(self._stub.BeginBackup, request).backup

    def backups(self, name: str = "", *, namespace: str = "") -> list[pb.Copy]:
        """The backups of an instance, or all."""
        request = pb.ListBackupsRequest(namespace=namespace, name=name)
        return list(self._transport.call(self._stub.ListBackups, request).backups)

    def end_backup(self, name: str, backup: str, *, abort: bool = False, namespace: str = "") -> pb.Copy:
        """End a backup that was pulled, or abort any."""
        request = pb.EndBackupRequest(namespace=namespace, name=name, backup=backup, abort=abort)
        return self._transport.call(self._stub.EndBackup, request).backup

    def checkpoints(self, name: str = "", *, namespace: str = "") -> list[pb.Checkpoint]:
        """The checkpoints of an instance, or all."""
        request = pb.ListCheckpointsRequest(namespace=namespace, name=name)
        return list(self._transport.call(self._stub.ListCheckpoints, request).checkpoints)

    def delete_checkpoint(self, name: str, checkpoint: str, *, namespace: str = "") -> None:
        """Forget a checkpoint."""
        request = pb.DeleteCheckpointRequest(namespace=namespace, name=name, checkpoint=checkpoint)
        self._transport.call(self._stub.DeleteCheckpoint, request)

    def dump_memory(
        self,
        name: str,
        *,
        claim: str = "",
        binding: ClaimBinding | None = None,
        volume: str = "",
        namespace: str = "",
    ) -> dict[str, Any]:
        """Begin a dump of the guest's memory; the instance's status tells how it ends."""
        request = pb.DumpMemoryRequest(
            namespace=namespace, name=name, claim=claim, binding=binding, volume=volume
        )
        return to_plain(self._transport.call(self._stub.DumpMemory, request).instance)

    def forget_memory_dump(self, name: str, *, namespace: str = "") -> dict[str, Any]:
        """Show the last dump no more; its file stays."""
        request = pb.ForgetMemoryDumpRequest(namespace=namespace, name=name)
        return to_plain(self._transport.call(self._stub.ForgetMemoryDump, request).instance)

    def wait(self, copy: pb.Copy, *, timeout_s: float) -> pb.Copy:
        """Look until ``copy`` ended, and return it as it is then.

        Raises:
            NotFound: somebody removed it. TimedOut: it goes on.
        """
        end = time.monotonic() + timeout_s
        while copy.phase not in ENDED:
            if time.monotonic() >= end:
                raise TimedOut(f"{copy.kind} {copy.name} did not end within {timeout_s:g} s; it goes on")
            time.sleep(POLL_S)
            found = [c for c in self._present(copy) if (c.vmi_uid, c.name) == (copy.vmi_uid, copy.name)]
            if not found:
                raise NotFound(copy.kind, copy.name)
            copy = found[0]
        return copy

    def _present(self, copy: pb.Copy) -> list[pb.Copy]:
        look = self.backups if copy.kind == "backup" else self.snapshots
        return look(copy.vmi, namespace=copy.namespace)
