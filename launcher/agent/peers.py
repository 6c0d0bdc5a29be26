# SPDX-License-Identifier: Apache-2.0
"""Other nodes' agents over gRPC: ``migration.peer.Peer`` on the wire. Decides nothing about a migration."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from pathlib import Path
from typing import TypeVar

import grpc

from launcher.errors import NotFound
from launcher.host.config import Tls
from launcher.migration.peer import PrepareReply, PrepareRequest, TargetState
from launcher.rpc.channel import METADATA, TlsFiles, check_target, credentials, is_local, options
from launcher.rpc.failure import error_of
from launcher.v1 import peer_pb2 as pb
from launcher.v1.peer_pb2_grpc import PeerServiceStub

PREPARE_TIMEOUT_S = 60.0
"""The checks take seconds; making volumes (an image to fetch) may take longer."""

FINISH_TIMEOUT_S = 30.0
STATE_TIMEOUT_S = 5.0

Reply = TypeVar("Reply")


class GrpcPeer:
    """One other agent. The channel connects by itself, again after a loss; ``close`` ends it."""

    def __init__(self, target: str, tls: TlsFiles) -> None:
        secure = credentials(target, tls)
        self.target = target
        self._channel = (
            grpc.aio.insecure_channel(target, options=options(tls))
            if secure is None
            else grpc.aio.secure_channel(target, secure, options=options(tls))
        )
        self._stub = PeerServiceStub(self._channel)

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
        )
        reply = await self._answer(self._stub.PrepareMigration(message, timeout=timeout_s, metadata=METADATA))
        return PrepareReply(
            findings=tuple(reply.findings),
            node=reply.node,
            destination_uri=reply.destination_uri,
            migrate_uri=reply.migrate_uri,
            destination_xml=reply.destination_xml,
            lease_s=reply.lease_seconds,
        )

    async def finish(
        self, attempt: str, *, succeeded: bool, reason: str = "", timeout_s: float = FINISH_TIMEOUT_S
    ) -> TargetState:
        """Tell the target how it ended."""
        message = pb.FinishMigrationRequest(attempt=attempt, succeeded=succeeded, reason=reason)
        reply = await self._answer(self._stub.FinishMigration(message, timeout=timeout_s, metadata=METADATA))
        return _state(reply.state)

    async def state(self, attempt: str, *, timeout_s: float = STATE_TIMEOUT_S) -> TargetState:
        """What the target knows of the attempt."""
        message = pb.GetMigrationStateRequest(attempt=attempt)
        reply = await self._answer(
            self._stub.GetMigrationState(message, timeout=timeout_s, metadata=METADATA)
        )
        return _state(reply.state)

    async def close(self) -> None:
        """Close the channel; calls under way end as cancelled."""
        await self._channel.close()

    async def _answer(self, call: Awaitable[Reply]) -> Reply:
        try:
            return await call
        except grpc.aio.AioRpcError as failure:
            raise error_of(failure, self.target) from failure


class Peers:
    """The peers of this node by name or address. Channels are kept, and made anew when TLS files change."""

    def __init__(self, addresses: Mapping[str, str], tls: Tls) -> None:
        self._addresses = dict(addresses)
        self._tls = TlsFiles(certificate=tls.certificate, key=tls.key, ca=tls.ca)
        self._open: dict[tuple[str, tuple[int, ...]], GrpcPeer] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the configuration, sorted."""
        return tuple(sorted(self._addresses))

    def peer(self, target: str) -> GrpcPeer:
        """The agent ``target``: a name of the configuration, ``ADDRESS:PORT`` or ``unix:PATH``.

        Raises:
            NotFound: no such name, and it is no address.
            InvalidRequest: it is reached over TCP and TLS files are missing.
        """
        address = self._addresses.get(target, target)
        if address == target and ":" not in target:
            known = ", ".join(self.names) or "none is configured"
            raise NotFound("peer", target, hint=f"known peers: {known}; ADDRESS:PORT is accepted too")
        key = (check_target(address), () if is_local(address) else self._stamps())
        if key not in self._open:
            self._open[key] = GrpcPeer(address, self._tls)
        return self._open[key]

    def _stamps(self) -> tuple[int, ...]:
        """Modification times of the TLS files: a renewed certificate gives a new channel."""
        paths = [Path(p) for p in (self._tls.certificate, self._tls.key, self._tls.ca) if p]
        return tuple(path.stat().st_mtime_ns if path.exists() else 0 for path in paths)

    async def close(self) -> None:
        """Close all channels."""
        peers, self._open = list(self._open.values()), {}
        for peer in peers:
            await peer.close()


def _state(state: pb.TargetState) -> TargetState:
    return TargetState(
        attempt=state.attempt,
        known=state.known,
        domain=state.domain,
        reason=state.reason,
        adopted=state.adopted,
    )
