# SPDX-License-Identifier: Apache-2.0
"""Wire messages <-> the agent's records. Pure. Judging a manifest is ``api.manifest``'s."""

from __future__ import annotations

from typing import Any, Protocol

import msgspec
from google.protobuf.struct_pb2 import Struct

from launcher.agent.port import (
    Attachment,
    ClaimBinding,
    Companions,
    EventType,
    MigrationProgress,
    MigrationReport,
    MigrationView,
    NodeView,
    Route,
)
from launcher.errors import InvalidRequest, Violation
from launcher.migration.peer import (
    MovedDisk,
    MovingDevice,
    PrepareReply,
    PrepareRequest,
    SharedDisk,
    TargetState,
)
from launcher.rpc.struct import from_plain
from launcher.spec.codec import enc_hook
from launcher.v1 import migrations_pb2, node_pb2, peer_pb2, types_pb2

DEFAULT_NAMESPACE = "default"

EVENT_TYPES = {
    EventType.ADDED: types_pb2.EVENT_TYPE_ADDED,
    EventType.MODIFIED: types_pb2.EVENT_TYPE_MODIFIED,
    EventType.DELETED: types_pb2.EVENT_TYPE_DELETED,
    EventType.BOOKMARK: types_pb2.EVENT_TYPE_BOOKMARK,
}


class Named(Protocol):
    """A request about one object."""

    @property
    def namespace(self) -> str: ...
    @property
    def name(self) -> str: ...


def key(request: Named) -> tuple[str, str]:
    """Namespace and name of the object that ``request`` is about.

    Raises:
        InvalidRequest: the name is missing.
    """
    if not request.name:
        finding = Violation(field="name", type="FieldValueRequired", message="must name the object")
        raise InvalidRequest([finding])
    return request.namespace or DEFAULT_NAMESPACE, request.name


def struct(model: msgspec.Struct) -> Struct:
    """An API object as the Kubernetes object it is (camelCase, defaults left out)."""
    return from_plain(_plain(model))


def companions(wire: types_pb2.Companions) -> Companions:
    """Secrets, ConfigMaps and claim bindings."""
    return Companions(
        secrets={name: dict(keyed.data) for name, keyed in wire.secrets.items()},
        config_maps={name: dict(keyed.data) for name, keyed in wire.config_maps.items()},
        claims=tuple(claim_binding(claim) for claim in wire.claims),
        service_accounts={name: dict(keyed.data) for name, keyed in wire.service_accounts.items()},
        attachments={name: _attachment(given) for name, given in wire.attachments.items()},
    )


def _attachment(wire: types_pb2.NetworkAttachment) -> Attachment:
    return Attachment(
        namespace=wire.namespace,
        interface=wire.interface,
        mac=wire.mac,
        mtu=wire.mtu,
        addresses=tuple(wire.addresses),
        device=wire.device,
        vlan=wire.vlan,
        routes=tuple(Route(destination=one.destination, gateway=one.gateway) for one in wire.routes),
    )


def claim_binding(wire: types_pb2.ClaimBinding) -> ClaimBinding:
    """Where a claim lies."""
    return ClaimBinding(
        claim=wire.claim,
        path=wire.path,
        block=wire.block,
        capacity=wire.capacity,
        shared=wire.shared,
        access_modes=tuple(wire.access_modes),
        preallocated=wire.preallocated,
    )


def migration(view: MigrationView) -> migrations_pb2.Migration:
    """A migration with what is known of it beyond its object."""
    return migrations_pb2.Migration(
        object=struct(view.object),
        progress=None if view.progress is None else _progress(view.progress),
        report=None if view.report is None else _report(view.report),
    )


def _progress(progress: MigrationProgress) -> migrations_pb2.MigrationProgress:
    return migrations_pb2.MigrationProgress(
        phase=progress.phase,
        elapsed_seconds=progress.elapsed_s,
        iteration=progress.iteration,
        total_bytes=progress.total,
        processed_bytes=progress.processed,
        remaining_bytes=progress.remaining,
        bandwidth_bytes_per_second=progress.bandwidth_bps,
        dirty_rate_bytes_per_second=progress.dirty_rate_bps,
        max_downtime_ms=progress.max_downtime_ms,
        eta_seconds=progress.eta_s,
        note=progress.note,
        disk_total_bytes=progress.disk_total,
        disk_processed_bytes=progress.disk_processed,
        disk_remaining_bytes=progress.disk_remaining,
        predicted_downtime_ms=progress.predicted_downtime_ms,
    )


def _report(report: MigrationReport) -> migrations_pb2.MigrationReport:
    return migrations_pb2.MigrationReport(
        succeeded=report.succeeded,
        reason=report.reason,
        total_ms=report.total_ms,
        downtime_ms=report.downtime_ms,
        setup_ms=report.setup_ms,
        iterations=report.iterations,
        transferred_bytes=report.transferred,
        memory_total_bytes=report.memory_total,
        mean_bytes_per_second=report.mean_bps,
        steps=[
            migrations_pb2.MigrationStep(elapsed_seconds=elapsed_s, action=action, reason=reason)
            for elapsed_s, action, reason in report.steps
        ],
        source=report.source,
        disk_bytes=report.disk_bytes,
        disk_ms=report.disk_ms,
        post_copy=report.post_copy,
        earlier=map(_report, report.earlier),
        predicted_downtime_ms=report.predicted_downtime_ms,
    )


def node(view: NodeView) -> node_pb2.Node:
    """The node."""
    return node_pb2.Node(
        name=view.name,
        version=view.version,
        libvirt_connected=view.libvirt_connected,
        libvirt_reason=view.libvirt_reason,
        facts=from_plain(_plain(view.facts)),
        instances=view.instances,
        migrations=view.migrations,
        peers=view.peers,
    )


def prepare_request(wire: peer_pb2.PrepareMigrationRequest) -> PrepareRequest:
    """What a source asks."""
    return PrepareRequest(
        attempt=attempt(wire.attempt),
        source_node=wire.source_node,
        vmi=wire.vmi,
        domain_xml=wire.domain_xml,
        companions=wire.companions,
        source_libvirt_version=wire.source_libvirt_version,
        source_qemu_version=wire.source_qemu_version,
        tls=wire.tls,
        deadline_s=wire.deadline_seconds,
        source_time=wire.source_time,
        disks=tuple(SharedDisk(path=disk.path, bytes=disk.bytes) for disk in wire.disks),
        copied_bytes=wire.copied_bytes,
        migration_id=wire.migration_id,
        notice=wire.notice,
        network=wire.network,
        moved=tuple(MovedDisk(volume=disk.volume, bytes=disk.bytes, taken=disk.taken) for disk in wire.moved),
        devices=tuple(MovingDevice(name=device.name, model=device.model) for device in wire.devices),
    )


def prepare_reply(reply: PrepareReply) -> peer_pb2.PrepareMigrationResponse:
    """What a target answers."""
    return peer_pb2.PrepareMigrationResponse(
        findings=reply.findings,
        node=reply.node,
        destination_uri=reply.destination_uri,
        migrate_uri=reply.migrate_uri,
        destination_xml=reply.destination_xml,
        lease_seconds=reply.lease_s,
        persistent_xml=reply.persistent_xml,
        disks_uri=reply.disks_uri,
        busy=reply.busy,
        tls_destination=reply.tls_destination,
        libvirt_version=reply.libvirt_version,
    )


def target_state(state: TargetState) -> peer_pb2.TargetState:
    """What a target knows of an attempt."""
    return peer_pb2.TargetState(
        attempt=state.attempt,
        known=state.known,
        domain=state.domain,
        reason=state.reason,
        adopted=state.adopted,
    )


def attempt(name: str) -> str:
    """``name`` unless it is empty.

    Raises:
        InvalidRequest: it is.
    """
    if not name:
        finding = Violation(field="attempt", type="FieldValueRequired", message="must name the attempt")
        raise InvalidRequest([finding])
    return name


def _plain(value: Any) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(value, str_keys=True, enc_hook=enc_hook)
    return plain
