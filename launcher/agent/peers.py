# SPDX-License-Identifier: Apache-2.0
"""Other nodes' agents over gRPC: ``migration.peer.Peer`` on the wire. Decides nothing about a migration."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from typing import TYPE_CHECKING, TypeVar

import grpc

from launcher.agent.port import Capacity
from launcher.host.config import Tls
from launcher.migration.peer import PrepareReply, PrepareRequest, TargetState
from launcher.rpc.channel import METADATA, TlsFiles, credentials, modified, options, whole
from launcher.rpc.failure import error_of
from launcher.v1 import peer_pb2 as pb
from launcher.v1.peer_pb2_grpc import PeerServiceStub

if TYPE_CHECKING:
    from launcher.v1.peer_pb2_grpc import PeerServiceAsyncStub

PREPARE_TIMEOUT_S = 60.0
"""The checks take seconds; making volumes (an image to fetch) may take longer."""

FINISH_TIMEOUT_S = 30.0
STATE_TIMEOUT_S = 5.0

Reply = TypeVar("Reply")


class GrpcPeer:
    """One other agent. The channel connects by itself, again after a loss; ``close`` ends it.

    Renewed TLS files are taken for the next call without a restart, as soon as they are whole.
    """

    def __init__(self, target: str, tls: TlsFiles) -> None:
        self.target, self._tls = target, tls
        self._stamps = modified(tls)
        self._channel = _channel(target, tls)
        self._retiring: set[asyncio.Task[None]] = set()

    async def prepare(self, request: PrepareRequest, *, timeout_s: float = PREPARE_TIMEOUT_S) -> PrepareReply:
        """Ask the target to check and reserve; findings in the reply mean no."""
        message = pb.PrepareMigrationRequest(
            attempt=request.attempt,
            source_node=request.source_node,
            vmi=request.vmi,
            domain_xml=request.domain_xml,
            companions=request.companions,
            source_libvirt_version=request.source_libvirt_version,
            source_qemu_version=request.source_qemu_version,
            tls=request.tls,
            deadline_seconds=request.deadline_s,
            source_time=request.source_time or time.time(),
            disks=[pb.SharedDisk(path=disk.path, bytes=disk.bytes) for disk in request.disks],
            copied_bytes=request.copied_bytes,
            migration_id=request.migration_id,
            notice=request.notice,
            network=request.network,
            moved=[
                pb.MovedDisk(volume=disk.volume, bytes=disk.bytes, taken=disk.taken) for disk in request.moved
            ],
            devices=[pb.MovingDevice(name=device.name, model=device.model) for device in request.devices],
        )
        reply = await self._answer(
            self._stub().PrepareMigration(message, timeout=timeout_s, metadata=METADATA)
        )
        return PrepareReply(
            findings=tuple(reply.findings),
            node=reply.node,
            destination_uri=reply.destination_uri,
            migrate_uri=reply.migrate_uri,
            destination_xml=reply.destination_xml,
            lease_s=reply.lease_seconds,
            persistent_xml=reply.persistent_xml,
            disks_uri=reply.disks_uri,
            busy=reply.busy,
            tls_destination=reply.tls_destination,
            libvirt_version=reply.libvirt_version,
        )

    async def finish(
        self,
        attempt: str,
        *,
        succeeded: bool,
        reason: str = "",
        reclaim: bool = False,
        discard: bool = False,
        timeout_s: float = FINISH_TIMEOUT_S,
    ) -> TargetState:
        """Tell the target how it ended."""
        message = pb.FinishMigrationRequest(
            attempt=attempt, succeeded=succeeded, reason=reason, reclaim=reclaim, discard=discard
        )
        reply = await self._answer(
            self._stub().FinishMigration(message, timeout=timeout_s, metadata=METADATA)
        )
        return _state(reply.state)

    async def state(self, attempt: str, *, timeout_s: float = STATE_TIMEOUT_S) -> TargetState:
        """What the target knows of the attempt."""
        message = pb.GetMigrationStateRequest(attempt=attempt)
        reply = await self._answer(
            self._stub().GetMigrationState(message, timeout=timeout_s, metadata=METADATA)
        )
        return _state(reply.state)

    async def interrupt(self, attempt: str, *, timeout_s: float = FINISH_TIMEOUT_S) -> TargetState:
        """Have the connections of a dead post-copy stream ended."""
        message = pb.InterruptPostCopyRequest(attempt=attempt)
        reply = await self._answer(
            self._stub().InterruptPostCopy(message, timeout=timeout_s, metadata=METADATA)
        )
        return _state(reply.state)

    async def reopen(self, attempt: str, *, timeout_s: float = FINISH_TIMEOUT_S) -> TargetState:
        """Have the target's QEMU wait for a new connection."""
        message = pb.ReopenPostCopyRequest(attempt=attempt)
        reply = await self._answer(self._stub().ReopenPostCopy(message, timeout=timeout_s, metadata=METADATA))
        return _state(reply.state)

    async def capacity(self, *, timeout_s: float = STATE_TIMEOUT_S) -> Capacity:
        """What the node has left for guests of others."""
        message = pb.GetCapacityRequest()
        found = await self._answer(self._stub().GetCapacity(message, timeout=timeout_s, metadata=METADATA))
        return Capacity(
            memory_left=found.memory_left_bytes if found.HasField("memory_left_bytes") else None,
            inbound_left=found.inbound_left,
            why=found.why,
        )

    async def close(self) -> None:
        """Close the channel; calls under way end as cancelled."""
        for closing in self._retiring:
            closing.cancel()
        await self._channel.close()

    def _stub(self) -> PeerServiceAsyncStub:
        stamps = modified(self._tls)
        if stamps != self._stamps and whole(self._tls):
            # A call may still use it. Without an end there would be one more for each renewal.
            closing = asyncio.create_task(self._channel.close(PREPARE_TIMEOUT_S))
            self._retiring.add(closing)
            closing.add_done_callback(self._retiring.discard)
            self._channel, self._stamps = _channel(self.target, self._tls), stamps
        return PeerServiceStub(self._channel)

    async def _answer(self, call: Awaitable[Reply]) -> Reply:
        try:
            return await call
        except grpc.aio.AioRpcError as failure:
            raise error_of(failure, self.target) from failure


def peer_of(target: str, tls: Tls) -> GrpcPeer:
    """The agent at ``ADDRESS:PORT`` or ``unix:PATH``; TLS files are read now.

    Raises:
        InvalidRequest: it is no address, or it is reached over TCP and TLS files are missing.
    """
    return GrpcPeer(target, TlsFiles(certificate=tls.certificate, key=tls.key, ca=tls.ca))


def _channel(target: str, tls: TlsFiles) -> grpc.aio.Channel:
    secure = credentials(target, tls)
    if secure is None:
        return grpc.aio.insecure_channel(target, options=options(tls))
    return grpc.aio.secure_channel(target, secure, options=options(tls))


def _state(state: pb.TargetState) -> TargetState:
    return TargetState(
        attempt=state.attempt,
        known=state.known,
        domain=state.domain,
        reason=state.reason,
        adopted=state.adopted,
    )
