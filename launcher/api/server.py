# SPDX-License-Identifier: Apache-2.0
"""The gRPC server: services, health, reflection, listeners. Starts and stops; judges no request."""

from __future__ import annotations

from pathlib import Path

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from launcher.agent.port import AgentPort
from launcher.api.backups import Backups
from launcher.api.drain import Drain
from launcher.api.instances import Instances
from launcher.api.interceptors import CallInterceptor
from launcher.api.launch_security import LaunchSecurity
from launcher.api.listener import open_socket, private_files, remove_stale_socket, server_credentials
from launcher.api.migrations import Migrations
from launcher.api.node import Node
from launcher.api.peer import Peer
from launcher.api.reflection import add_reflection
from launcher.api.streams import Streams
from launcher.api.volumes import Volumes
from launcher.errors import Conflict, LauncherError
from launcher.host.config import Listen, Tls
from launcher.host.logging import get
from launcher.rpc.channel import KEEPALIVE_MS, KEEPALIVE_TIMEOUT_MS, MAX_MESSAGE
from launcher.units import KIB
from launcher.v1 import (
    backups_pb2,
    drain_pb2,
    instances_pb2,
    launch_security_pb2,
    migrations_pb2,
    node_pb2,
    peer_pb2,
    streams_pb2,
    volumes_pb2,
)
from launcher.v1.backups_pb2_grpc import add_BackupServiceServicer_to_server
from launcher.v1.drain_pb2_grpc import add_DrainServiceServicer_to_server
from launcher.v1.instances_pb2_grpc import add_InstanceServiceServicer_to_server
from launcher.v1.launch_security_pb2_grpc import add_LaunchSecurityServiceServicer_to_server
from launcher.v1.migrations_pb2_grpc import add_MigrationServiceServicer_to_server
from launcher.v1.node_pb2_grpc import add_NodeServiceServicer_to_server
from launcher.v1.peer_pb2_grpc import add_PeerServiceServicer_to_server
from launcher.v1.streams_pb2_grpc import add_StreamServiceServicer_to_server
from launcher.v1.volumes_pb2_grpc import add_VolumeServiceServicer_to_server

log = get(__name__)

SERVICES = tuple(
    service.full_name
    for module in (
        backups_pb2,
        drain_pb2,
        instances_pb2,
        launch_security_pb2,
        migrations_pb2,
        node_pb2,
        peer_pb2,
        streams_pb2,
        volumes_pb2,
    )
    for service in module.DESCRIPTOR.services_by_name.values()
)
# The node can be asked how it is even when it can do nothing.
NEEDING_LIBVIRT = tuple(name for name in SERVICES if not name.endswith(".NodeService"))

_OPTIONS = (
    ("grpc.so_reuseport", 0),  # a second agent on the same port must fail, not share it
    ("grpc.keepalive_time_ms", KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
    # Clients ping as often as we do; without this the server calls that abuse and hangs up.
    ("grpc.http2.min_ping_interval_without_data_ms", KEEPALIVE_MS // 2),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.max_receive_message_length", MAX_MESSAGE),
    ("grpc.max_send_message_length", MAX_MESSAGE),
    ("grpc.max_metadata_size", 64 * KIB),
)


class ApiServer:
    """Serves ``agent`` on a unix socket and, when configured with mutual TLS, on TCP."""

    def __init__(self, agent: AgentPort, listen: Listen, tls: Tls) -> None:
        self._listen, self._tls = listen, tls
        self._agent = agent
        self._calls = CallInterceptor()
        self._health = health.aio.HealthServicer()
        self._server: grpc.aio.Server | None = None
        self._socket = Path(listen.socket) if listen.socket else None
        self.tcp_port = 0
        """The port that TCP is served on; 0 when it is not."""

    async def start(self) -> None:
        """Bind and serve.

        Raises:
            InvalidRequest: a setting cannot be used (TCP without mutual TLS among them).
            Conflict: an address is taken.
        """
        # TLS first: a setting that cannot be served must not leave a half-open server.
        secure = server_credentials(self._tls) if self._listen.tcp else None
        server = grpc.aio.server(interceptors=[self._calls], options=_OPTIONS)
        add_BackupServiceServicer_to_server(Backups(self._agent.backups), server)
        add_DrainServiceServicer_to_server(Drain(self._agent.drains), server)
        add_InstanceServiceServicer_to_server(Instances(self._agent), server)
        add_LaunchSecurityServiceServicer_to_server(LaunchSecurity(self._agent), server)
        add_MigrationServiceServicer_to_server(Migrations(self._agent), server)
        add_NodeServiceServicer_to_server(Node(self._agent), server)
        add_PeerServiceServicer_to_server(Peer(self._agent), server)
        add_StreamServiceServicer_to_server(Streams(self._agent), server)
        add_VolumeServiceServicer_to_server(Volumes(self._agent), server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        add_reflection(server, (*SERVICES, health.SERVICE_NAME))
        try:
            self._bind_all(server, secure)
        except LauncherError:
            await server.stop(None)
            raise
        for name in SERVICES:
            await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)
        await server.start()
        self._server = server
        log.info("serving gRPC", socket=str(self._socket or ""), tcp_port=self.tcp_port)

    def _bind_all(self, server: grpc.aio.Server, secure: grpc.ServerCredentials | None) -> None:
        if self._socket is not None:
            remove_stale_socket(self._socket)
            with private_files():
                _bind(server, f"unix:{self._socket}", None)
        try:
            if self._socket is not None:
                open_socket(self._socket, self._listen)
            if secure is not None:
                self.tcp_port = _bind(server, self._listen.tcp, secure)
        except LauncherError:
            self._remove_socket()
            raise

    def _remove_socket(self) -> None:
        if self._socket is not None:
            self._socket.unlink(missing_ok=True)

    async def set_ready(self, *, ready: bool) -> None:
        """Tell health whether libvirt can be reached; the server as a whole (``""``) serves either way."""
        status = (
            health_pb2.HealthCheckResponse.SERVING if ready else health_pb2.HealthCheckResponse.NOT_SERVING
        )
        for name in NEEDING_LIBVIRT:
            await self._health.set(name, status)

    async def stop(self, *, grace_s: float = 5.0) -> None:
        """Say NOT_SERVING, end the streams, let the other calls finish for ``grace_s``, close. Repeatable."""
        await self._health.enter_graceful_shutdown()
        server, self._server = self._server, None
        if server is None:
            return
        self._calls.end_streams()
        await server.stop(grace_s)
        self._remove_socket()


def _bind(server: grpc.aio.Server, address: str, secure: grpc.ServerCredentials | None) -> int:
    try:
        return (
            server.add_insecure_port(address) if secure is None else server.add_secure_port(address, secure)
        )
    except RuntimeError as error:
        raise Conflict(f"cannot listen on {address}", hint="is the address free, and this node's?") from error
