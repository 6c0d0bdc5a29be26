# SPDX-License-Identifier: Apache-2.0
"""A small synchronous client of an agent, for the CLI, the lab and tests. Objects are plain JSON values.

    with Client("unix:/run/launcher/launcherd.sock") as client:
        client.instances.create(Path("vm.yaml").read_text())

Every call raises ``launcher.errors`` classes only, and ends after ``timeout_s``; streams end when their
iterator is closed. Watches and consoles have no deadline.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import closing
from types import TracebackType
from typing import Any, NamedTuple

import grpc

from launcher.cli.backup_client import Backups
from launcher.cli.client_volumes import Volumes
from launcher.cli.streams import Streams
from launcher.cli.transport import Transport
from launcher.rpc.channel import METADATA, TlsFiles, credentials, options
from launcher.rpc.failure import error_of
from launcher.rpc.struct import to_plain
from launcher.v1 import drain_pb2, instances_pb2, launch_security_pb2, migrations_pb2, node_pb2, types_pb2
from launcher.v1.drain_pb2_grpc import DrainServiceStub
from launcher.v1.instances_pb2_grpc import InstanceServiceStub
from launcher.v1.launch_security_pb2_grpc import LaunchSecurityServiceStub
from launcher.v1.migrations_pb2_grpc import MigrationServiceStub
from launcher.v1.node_pb2_grpc import NodeServiceStub

DEFAULT_SERVER = "unix:/run/launcher/launcherd.sock"
DEFAULT_TIMEOUT_S = 30.0

Object = dict[str, Any]


class Change(NamedTuple):
    """A watch event: ``type`` is ADDED, MODIFIED, DELETED or BOOKMARK (which has no object)."""

    type: str
    version: int
    object: Object | None


class MigrationChange(NamedTuple):
    """The same for migrations."""

    type: str
    version: int
    migration: migrations_pb2.Migration | None


class Instances:
    """Calls of InstanceService. ``namespace`` empty: "default" (in list and watch: all)."""

    def __init__(self, channel: grpc.Channel, transport: Transport) -> None:
        self._stub = InstanceServiceStub(channel)
        self._transport = transport

    def create(
        self,
        manifest: str | Mapping[str, Any],
        companions: types_pb2.Companions | None = None,
        *,
        namespace: str = "",
        dry_run: bool = False,
    ) -> Object:
        """Create an instance from YAML, JSON or a plain object (which is sent as JSON)."""
        request = instances_pb2.CreateInstanceRequest(
            text=_text(manifest), namespace=namespace, companions=companions, dry_run=dry_run
        )
        return to_plain(self._transport.call(self._stub.CreateInstance, request).instance)

    def update(
        self,
        manifest: str | Mapping[str, Any],
        companions: types_pb2.Companions | None = None,
        *,
        namespace: str = "",
        dry_run: bool = False,
        volumes_strategy: str = "",
    ) -> Object:
        """Change a running instance to what its manifest says now.

        With the ``volumes_strategy`` Migration its volumes may have other claims.
        """
        request = instances_pb2.UpdateInstanceRequest(
            text=_text(manifest),
            namespace=namespace,
            companions=companions,
            dry_run=dry_run,
            update_volumes_strategy=volumes_strategy,
        )
        return to_plain(self._transport.call(self._stub.UpdateInstance, request).instance)

    def get(self, name: str, *, namespace: str = "") -> Object:
        """One instance."""
        request = instances_pb2.GetInstanceRequest(namespace=namespace, name=name)
        return to_plain(self._transport.call(self._stub.GetInstance, request).instance)

    def list(self, *, namespace: str = "") -> list[Object]:
        """All instances, or those of one namespace."""
        request = instances_pb2.ListInstancesRequest(namespace=namespace)
        return [to_plain(item) for item in self._transport.call(self._stub.ListInstances, request).instances]

    def watch(
        self, *, namespace: str = "", name: str = "", timeout_s: float | None = None
    ) -> Generator[Change, None, None]:
        """ADDED for each present instance, a BOOKMARK, then changes until TimedOut, by default for ever."""
        request = instances_pb2.WatchInstancesRequest(namespace=namespace, name=name)
        with closing(self._transport.stream(self._stub.WatchInstances, request, timeout_s)) as events:
            for event in events:
                found = to_plain(event.instance) if event.HasField("instance") else None
                yield Change(_event_type(event.type), event.version, found)

    def delete(
        self,
        name: str,
        *,
        namespace: str = "",
        grace_period_s: int | None = None,
        remove_persistent_state: bool = False,
    ) -> Object:
        """Begin to stop and remove an instance, and with it, if asked, what would outlive it."""
        request = instances_pb2.DeleteInstanceRequest(
            namespace=namespace,
            name=name,
            grace_period_seconds=grace_period_s,
            remove_persistent_state=remove_persistent_state,
        )
        return to_plain(self._transport.call(self._stub.DeleteInstance, request).instance)

    def pause(self, name: str, *, namespace: str = "") -> Object:
        """Freeze the guest."""
        request = instances_pb2.PauseInstanceRequest(namespace=namespace, name=name)
        return to_plain(self._transport.call(self._stub.PauseInstance, request).instance)

    def unpause(self, name: str, *, namespace: str = "") -> Object:
        """Let the guest go on."""
        request = instances_pb2.UnpauseInstanceRequest(namespace=namespace, name=name)
        return to_plain(self._transport.call(self._stub.UnpauseInstance, request).instance)

    def domain_xml(self, name: str, *, namespace: str = "") -> str:
        """The live XML of libvirt."""
        request = instances_pb2.GetDomainXmlRequest(namespace=namespace, name=name)
        return self._transport.call(self._stub.GetDomainXml, request).xml

    def console_log(self, name: str, *, namespace: str = "", tail_bytes: int = 0) -> bytes:
        """The last bytes of the console log (0: as many as the agent thinks fit)."""
        request = instances_pb2.GetConsoleLogRequest(namespace=namespace, name=name, tail_bytes=tail_bytes)
        return self._transport.call(self._stub.GetConsoleLog, request).data

    def traffic(self, name: str, *, namespace: str = "") -> tuple[instances_pb2.InterfaceTraffic, ...]:
        """What went over the interfaces of a running guest."""
        request = instances_pb2.GetTrafficRequest(namespace=namespace, name=name)
        return tuple(self._transport.call(self._stub.GetTraffic, request).interfaces)

    def console(self, name: str, keys: Iterable[bytes], *, namespace: str = "") -> Console:
        """Open the serial console; ``keys`` is consumed in a thread of gRPC's."""
        first = instances_pb2.ConsoleOpen(namespace=namespace, name=name)
        responses = self._stub.Console(_console_requests(first, keys), metadata=METADATA)
        return Console(responses, self._transport.target)


class Console:
    """An open console: iterate over what the guest prints. The first item is empty: it is open."""

    def __init__(self, responses: Any, target: str) -> None:
        self._responses, self._target = responses, target

    def __iter__(self) -> Iterator[bytes]:
        try:
            for response in self._responses:
                yield response.data
        except grpc.RpcError as failure:
            if failure.code() != grpc.StatusCode.CANCELLED:
                raise error_of(failure, self._target) from failure

    def close(self) -> None:
        """End the session; an iteration under way ends too."""
        self._responses.cancel()


class Migrations:
    """Calls of MigrationService. ``namespace`` empty: "default" (in list and watch_all: all)."""

    def __init__(self, channel: grpc.Channel, transport: Transport) -> None:
        self._stub = MigrationServiceStub(channel)
        self._transport = transport

    def create(self, manifest: str | Mapping[str, Any], *, target: str = "", namespace: str = "") -> Object:
        """Begin a migration to ``target``, a peer's name or ADDRESS:PORT (or where the manifest says)."""
        request = migrations_pb2.CreateMigrationRequest(
            text=_text(manifest), target=target, namespace=namespace
        )
        return to_plain(self._transport.call(self._stub.CreateMigration, request).migration)

    def get(self, name: str, *, namespace: str = "") -> migrations_pb2.Migration:
        """One migration."""
        request = migrations_pb2.GetMigrationRequest(namespace=namespace, name=name)
        return self._transport.call(self._stub.GetMigration, request).migration

    def list(self, *, namespace: str = "") -> list[migrations_pb2.Migration]:
        """All migrations, or those of one namespace."""
        request = migrations_pb2.ListMigrationsRequest(namespace=namespace)
        return list(self._transport.call(self._stub.ListMigrations, request).migrations)

    def watch(
        self, name: str, *, namespace: str = "", timeout_s: float | None = None
    ) -> Generator[migrations_pb2.Migration, None, None]:
        """The present state, then each look at it; the last one has the report."""
        request = migrations_pb2.WatchMigrationRequest(namespace=namespace, name=name)
        with closing(self._transport.stream(self._stub.WatchMigration, request, timeout_s)) as views:
            for view in views:
                yield view.migration

    def watch_all(
        self, *, namespace: str = "", timeout_s: float | None = None
    ) -> Generator[MigrationChange, None, None]:
        """ADDED for each present migration, a BOOKMARK, then changes without end."""
        request = migrations_pb2.WatchMigrationsRequest(namespace=namespace)
        with closing(self._transport.stream(self._stub.WatchMigrations, request, timeout_s)) as events:
            for event in events:
                found = event.migration if event.HasField("migration") else None
                yield MigrationChange(_event_type(event.type), event.version, found)

    def cancel(self, name: str, *, namespace: str = "") -> migrations_pb2.Migration:
        """Ask a running migration to stop."""
        request = migrations_pb2.CancelMigrationRequest(namespace=namespace, name=name)
        return self._transport.call(self._stub.CancelMigration, request).migration

    def recover(self, name: str, *, namespace: str = "") -> migrations_pb2.Migration:
        """Try again to put together a guest whose post-copy was interrupted."""
        request = migrations_pb2.RecoverMigrationRequest(namespace=namespace, name=name)
        return self._transport.call(self._stub.RecoverMigration, request).migration

    def delete(self, name: str, *, namespace: str = "") -> migrations_pb2.Migration:
        """Forget a migration; one under way is cancelled first."""
        request = migrations_pb2.DeleteMigrationRequest(namespace=namespace, name=name)
        return self._transport.call(self._stub.DeleteMigration, request).migration

    def recording(self, name: str, *, namespace: str = "", attempt: int = 0) -> bytes:
        """What a migration saw and decided so far, as JSON lines; ``attempt`` from 1, 0: the last."""
        request = migrations_pb2.GetRecordingRequest(namespace=namespace, name=name, attempt=attempt)
        timeout_s = self._transport.timeout_s
        with closing(self._transport.stream(self._stub.GetRecording, request, timeout_s)) as pieces:
            return b"".join(piece.data for piece in pieces)


class LaunchSecurity:
    """Calls of LaunchSecurityService. ``namespace`` empty: "default". All blobs are base64."""

    def __init__(self, channel: grpc.Channel, transport: Transport) -> None:
        self._stub = LaunchSecurityServiceStub(channel)
        self._transport = transport

    def platform(self) -> launch_security_pb2.GetSevPlatformResponse:
        """What identifies the SEV firmware of the node."""
        request = launch_security_pb2.GetSevPlatformRequest()
        return self._transport.call(self._stub.GetSevPlatform, request)

    def set_up(self, name: str, *, session: str, dh_cert: str, namespace: str = "") -> Object:
        """Let a waiting instance start in its owner's session."""
        request = launch_security_pb2.SetUpSevSessionRequest(
            namespace=namespace, name=name, session=session, dh_cert=dh_cert
        )
        return to_plain(self._transport.call(self._stub.SetUpSevSession, request).instance)

    def measurement(self, name: str, *, namespace: str = "") -> launch_security_pb2.GetSevMeasurementResponse:
        """What was measured of a guest that started."""
        request = launch_security_pb2.GetSevMeasurementRequest(namespace=namespace, name=name)
        return self._transport.call(self._stub.GetSevMeasurement, request)

    def inject_secret(self, name: str, *, header: str, secret: str, namespace: str = "") -> None:
        """Hand a secret to a guest that has not run yet."""
        request = launch_security_pb2.InjectSevSecretRequest(
            namespace=namespace, name=name, header=header, secret=secret
        )
        self._transport.call(self._stub.InjectSevSecret, request)


class Client:
    """A connection to one agent. It connects when first used, and again after a loss."""

    def __init__(
        self,
        target: str = DEFAULT_SERVER,
        tls: TlsFiles | None = None,
        *,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> None:
        tls = tls or TlsFiles()
        secure = credentials(target, tls)
        self._channel = (
            grpc.insecure_channel(target, options=options(tls))
            if secure is None
            else grpc.secure_channel(target, secure, options=options(tls))
        )
        self._transport = Transport(target, timeout_s)
        self.instances = Instances(self._channel, self._transport)
        self.migrations = Migrations(self._channel, self._transport)
        self.launch_security = LaunchSecurity(self._channel, self._transport)
        self.streams = Streams(self._channel, target)
        self.backups = Backups(self._channel, self._transport)
        self.volumes = Volumes(self._channel, self._transport)

    def node(self) -> node_pb2.Node:
        """The node."""
        stub = NodeServiceStub(self._channel)
        return self._transport.call(stub.GetNode, node_pb2.GetNodeRequest()).node

    def drain(
        self,
        targets: Iterable[str],
        instances: Iterable[str] = (),
        *,
        dry_run: bool = False,
        undo: bool = False,
    ) -> Generator[drain_pb2.DrainResponse, None, None]:
        """Empty the node: each step as it happens. ``instances`` are NAMESPACE/NAME, none: all."""
        stub = DrainServiceStub(self._channel)
        request = drain_pb2.DrainRequest(targets=targets, instances=instances, dry_run=dry_run, undo=undo)
        return self._transport.stream(stub.Drain, request)

    def close(self) -> None:
        """Close the connection; streams end."""
        self._channel.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _text(manifest: str | Mapping[str, Any]) -> str:
    return manifest if isinstance(manifest, str) else json.dumps(manifest)


def _event_type(value: types_pb2.EventType.ValueType) -> str:
    return types_pb2.EventType.Name(value).removeprefix("EVENT_TYPE_")


def _console_requests(
    first: instances_pb2.ConsoleOpen, keys: Iterable[bytes]
) -> Iterator[instances_pb2.ConsoleRequest]:
    yield instances_pb2.ConsoleRequest(open=first)
    for data in keys:
        yield instances_pb2.ConsoleRequest(data=data)
