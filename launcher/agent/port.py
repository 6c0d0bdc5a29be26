# SPDX-License-Identifier: Apache-2.0
"""What ``api`` may ask of the agent: one protocol and its records. No behaviour here."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from enum import StrEnum
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from launcher.agent.volume_port import AddedVolume as AddedVolume
from launcher.agent.volume_port import VolumePort as VolumePort
from launcher.migration.peer import PrepareReply, PrepareRequest, TargetState
from launcher.migration.progress import MigrationProgress as MigrationProgress
from launcher.migration.progress import MigrationReport as MigrationReport
from launcher.plan.allocations import Attachment as Attachment
from launcher.plan.allocations import Route as Route
from launcher.spec.model import VirtualMachineInstance, VirtualMachineInstanceMigration

T = TypeVar("T")


class ClaimBinding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a PersistentVolumeClaim or DataVolume lies on this node.

    ``path`` is a directory holding ``disk.img``, an image file, or a block device; ``capacity`` is in bytes
    (0: not known); ``shared`` says that other nodes reach the same storage; ``preallocated`` that all blocks
    of its image are to be taken from the start.
    """

    claim: str
    path: str
    block: bool = False
    capacity: int = 0
    shared: bool = False
    access_modes: tuple[str, ...] = ()
    preallocated: bool = False


class Companions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What travels beside a VMI. Values of ``secrets`` never reach a log, a status or a listing.

    ``service_accounts`` hold the files of a token directory by the name of the account; they are secrets,
    too. ``digests`` are those of container images by reference, as the first node resolved them.
    ``attachments`` are links that were made for interfaces, by the names of their networks.
    """

    secrets: dict[str, dict[str, bytes]] = {}
    config_maps: dict[str, dict[str, bytes]] = {}
    claims: tuple[ClaimBinding, ...] = ()
    service_accounts: dict[str, dict[str, bytes]] = {}
    digests: dict[str, str] = {}
    attachments: dict[str, Attachment] = {}


class EventType(StrEnum):
    """Kinds of watch events, as in Kubernetes. BOOKMARK ends the initial listing and carries no object."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"


class WatchEvent(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """One change; ``version`` rises by at least 1 with each."""

    type: EventType
    version: int
    object: T | None = None


class MigrationView(msgspec.Struct, frozen=True, kw_only=True):
    """A migration as the API shows it."""

    object: VirtualMachineInstanceMigration
    progress: MigrationProgress | None = None
    report: MigrationReport | None = None


class NodeView(msgspec.Struct, frozen=True, kw_only=True):
    """The node: name, versions, capabilities, the state of its connection to libvirt and its counts."""

    name: str
    version: str
    libvirt_connected: bool
    libvirt_reason: str
    facts: Mapping[str, Any]
    instances: int
    migrations: int
    peers: tuple[str, ...]


class SevPlatformView(msgspec.Struct, frozen=True, kw_only=True):
    """What identifies the SEV firmware of this host to the owner of a guest; keys are base64."""

    pdh: str
    cert_chain: str
    cpu0_id: str = ""
    cbitpos: int = 0
    reduced_phys_bits: int = 0
    max_guests: int = 0
    max_es_guests: int = 0


class SevMeasurementView(msgspec.Struct, frozen=True, kw_only=True):
    """What SEV's firmware measured of a guest (base64), and the image that it started with (SHA-256)."""

    measurement: str
    api_major: int = 0
    api_minor: int = 0
    build_id: int = 0
    policy: int = 0
    loader_sha256: str = ""


class CopiedVolumeView(msgspec.Struct, frozen=True, kw_only=True):
    """A volume of a copy: the file that has it or, for pulling, its NBD export and the bitmap of changes."""

    volume: str
    target: str
    file: str = ""
    export: str = ""
    bitmap: str = ""


class CopyView(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot or a backup. ``phase`` is Pending, InProgress, Succeeded or Failed; ``indications`` tell how
    quiet the guest was; ``endpoint`` is where it is pulled from: a socket's path or ADDRESS:PORT."""

    kind: str
    name: str
    namespace: str
    vmi: str
    vmi_uid: str
    phase: str
    message: str
    mode: str
    indications: tuple[str, ...]
    volumes: tuple[CopiedVolumeView, ...]
    incremental: str
    checkpoint: str
    endpoint: str
    created: str
    ended: str
    processed: int
    total: int


class CheckpointView(msgspec.Struct, frozen=True, kw_only=True):
    """A moment that an incremental backup can go on from; ``invalid`` says why it cannot."""

    name: str
    namespace: str
    vmi: str
    created: str
    volumes: tuple[str, ...]
    invalid: str


class BackupRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A backup to begin. ``directory``, or that of the utility volume ``destination``, is where a pushed one
    goes; ``listen`` (ADDRESS:PORT, with TLS) where one is pulled from, else a unix socket. ``incremental``
    names a checkpoint; no ``volumes``: all tracked ones. ``deadline_s`` 0: the default."""

    name: str = ""
    mode: str = "push"
    directory: str = ""
    destination: str = ""
    listen: str = ""
    incremental: str = ""
    volumes: tuple[str, ...] = ()
    quiesce: bool = True
    deadline_s: int = 0


class Capacity(msgspec.Struct, frozen=True, kw_only=True):
    """What a node has left for guests of others: memory in bytes (None: not known), places for migrations.
    ``why`` it takes none at all; empty: it does."""

    memory_left: int | None = None
    inbound_left: int = 0
    why: str = ""


class DrainRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be moved (``namespace/name``; empty: all) and where to (empty: any peer).
    ``undo`` only takes marks back."""

    targets: tuple[str, ...] = ()
    instances: tuple[str, ...] = ()
    dry_run: bool = False
    undo: bool = False


class DrainStep(msgspec.Struct, frozen=True, kw_only=True):
    """What became of an instance: it ``stays`` for a ``reason``, is ``moving``, ``moved``, ``would move``."""

    namespace: str
    name: str
    state: str
    target: str = ""
    migration: str = ""
    reason: str = ""
    predicted_s: float = 0.0


class DrainPort(Protocol):
    """Emptying the node. Raises only ``launcher.errors`` classes."""

    async def capacity(self) -> Capacity: ...
    def drain(self, request: DrainRequest) -> AsyncIterator[DrainStep]:
        """Move what can be moved; ends when nothing more can be done. NotFound, InvalidRequest at once."""


class BackupPort(Protocol):
    """Copies of running guests. Raises only ``launcher.errors`` classes."""

    async def freeze(self, namespace: str, name: str, *, unfreeze_after_s: float) -> None:
        """Freeze the guest's file systems by its agent, for at most that long (0: until they are thawed)."""

    async def unfreeze(self, namespace: str, name: str) -> None: ...
    async def create_snapshot(
        self, namespace: str, vmi: str, *, name: str, volumes: tuple[str, ...], quiesce: bool
    ) -> CopyView:
        """Copy disks as they are now; returns when that moment is fixed, the copy goes on."""

    async def list_snapshots(self, namespace: str | None, vmi: str) -> tuple[CopyView, ...]:
        """Those of an instance, or of all (empty ``vmi``), also of those that are gone."""

    async def delete_snapshot(self, namespace: str, vmi: str, name: str) -> None:
        """Remove a snapshot with its files; one under way is aborted first."""

    async def begin_backup(self, namespace: str, vmi: str, request: BackupRequest) -> CopyView:
        """Copy tracked disks as they are now, or what changed since a checkpoint; make a checkpoint."""

    async def list_backups(self, namespace: str | None, vmi: str) -> tuple[CopyView, ...]: ...
    async def end_backup(self, namespace: str, vmi: str, name: str, *, abort: bool) -> CopyView:
        """End a backup that was pulled, or abort any: then its checkpoint goes, too."""

    async def list_checkpoints(self, namespace: str | None, vmi: str) -> tuple[CheckpointView, ...]: ...
    async def delete_checkpoint(self, namespace: str, vmi: str, name: str) -> None: ...
    async def dump_memory(
        self, namespace: str, vmi: str, *, claim: str, binding: ClaimBinding | None, volume: str = ""
    ) -> VirtualMachineInstance:
        """Begin to dump the guest's memory into a claim or utility volume; volumeStatus tells how it ends."""

    async def forget_memory_dump(self, namespace: str, vmi: str) -> VirtualMachineInstance:
        """Show the last dump no more; its file stays."""


class ConsoleSession(Protocol):
    """An open serial console: bytes both ways. Closing twice is fine."""

    async def read(self) -> bytes:
        """The next bytes from the guest; empty when the console ended."""

    async def write(self, data: bytes) -> None: ...
    async def close(self) -> None: ...


class InterfaceTraffic(msgspec.Struct, frozen=True, kw_only=True):
    """What went over an interface since the guest has it here, as the guest sees it: received and
    transmitted bytes, packets, packets with errors and dropped ones."""

    namespace: str
    instance: str
    interface: str
    rx_bytes: int = 0
    rx_packets: int = 0
    rx_errors: int = 0
    rx_dropped: int = 0
    tx_bytes: int = 0
    tx_packets: int = 0
    tx_errors: int = 0
    tx_dropped: int = 0


class ByteStream(Protocol):
    """An open connection to a guest: bytes both ways, each with an end of its own. Closing twice is fine."""

    async def read(self) -> bytes:
        """The next bytes from the guest; empty when it has said all."""

    async def write(self, data: bytes) -> None:
        """Hand bytes over, at the guest's pace."""

    async def end(self) -> None:
        """Tell the guest that no more bytes come."""

    async def close(self) -> None: ...


class AgentPort(Protocol):
    """The agent as ``api`` sees it. Raises only ``launcher.errors`` classes."""

    @property
    def drains(self) -> DrainPort:
        """Emptying the node."""

    @property
    def backups(self) -> BackupPort:
        """Snapshots, backups and what belongs to them."""

    @property
    def volumes(self) -> VolumePort:
        """Volumes that come and go."""

    async def create_instance(
        self, manifest: VirtualMachineInstance, companions: Companions, *, dry_run: bool = False
    ) -> VirtualMachineInstance:
        """Accept an instance (idempotent for the same uid); InvalidSpec, AlreadyExists, HostUnsupported …"""

    async def update_instance(
        self,
        manifest: VirtualMachineInstance,
        companions: Companions = Companions(),  # noqa: B008 - frozen
        *,
        dry_run: bool = False,
        strategy: str = "",
    ) -> VirtualMachineInstance:
        """Change sockets, memory, interfaces and volumes of a running instance; returns once recorded.

        ``strategy`` is KubeVirt's updateVolumesStrategy: with ``Migration`` volumes may have other claims.
        """

    async def get_instance(self, namespace: str, name: str) -> VirtualMachineInstance: ...
    async def list_instances(self, namespace: str | None) -> tuple[VirtualMachineInstance, ...]: ...
    def watch_instances(
        self, namespace: str | None, name: str | None
    ) -> AsyncIterator[WatchEvent[VirtualMachineInstance]]:
        """ADDED for each present instance, a BOOKMARK, then every change; none is missed."""

    async def delete_instance(
        self, namespace: str, name: str, *, grace_period_s: int | None = None, discard_state: bool = False
    ) -> VirtualMachineInstance | None:
        """Begin to stop and remove an instance; returns at once, watch for DELETED.

        ``discard_state``: what its firmware and TPM remember goes, too, also of instances that are gone
        (None: there was no other).
        """

    async def pause_instance(self, namespace: str, name: str) -> VirtualMachineInstance: ...
    async def unpause_instance(self, namespace: str, name: str) -> VirtualMachineInstance: ...
    async def instance_xml(self, namespace: str, name: str) -> str:
        """The live domain XML."""

    async def console(self, namespace: str, name: str) -> ConsoleSession: ...
    async def console_log(self, namespace: str, name: str, *, tail_bytes: int) -> bytes:
        """The last bytes of the serial console log."""

    async def traffic(self, namespace: str | None, name: str | None) -> tuple[InterfaceTraffic, ...]:
        """Of all interfaces (None: of all namespaces, of all instances) of guests that run."""

    # Connections to a guest; WrongPhase, Exhausted, HostUnsupported, Unavailable say why there is none.
    async def port_forward(self, namespace: str, name: str, port: int) -> ByteStream:
        """To a TCP port, from inside the guest's network."""

    async def vnc(self, namespace: str, name: str) -> ByteStream: ...
    async def usb_redirect(self, namespace: str, name: str) -> ByteStream:
        """To a slot for a USB device that is free."""

    async def create_migration(
        self, manifest: VirtualMachineInstanceMigration, *, target: str
    ) -> VirtualMachineInstanceMigration:
        """Begin a migration to the peer ``target`` (a name of the configuration or ADDRESS:PORT)."""

    async def get_migration(self, namespace: str, name: str) -> MigrationView: ...
    async def list_migrations(self, namespace: str | None) -> tuple[MigrationView, ...]: ...
    def watch_migration(self, namespace: str, name: str) -> AsyncIterator[MigrationView]:
        """The present view, then one for each poll or change; the last one shows the end."""

    def watch_migrations(self, namespace: str | None) -> AsyncIterator[WatchEvent[MigrationView]]: ...
    async def cancel_migration(self, namespace: str, name: str) -> MigrationView: ...
    async def recover_migration(self, namespace: str, name: str) -> MigrationView:
        """Try again to put a guest together whose post-copy was interrupted, or to find out who has it."""

    async def delete_migration(self, namespace: str, name: str) -> MigrationView:
        """Forget a migration; one under way is cancelled first and forgotten when it ended."""

    async def migration_recording(self, namespace: str, name: str, *, attempt: int = 0) -> bytes:
        """What a migration saw and decided so far, as JSON lines (``migration.recording``): in its attempt of
        that number (from 1), or in the last."""

    async def node(self) -> NodeView: ...

    # Attestation of SEV guests: HostUnsupported without SEV, WrongPhase when it is not the time for it.
    async def sev_platform(self) -> SevPlatformView: ...
    async def set_up_sev(
        self, namespace: str, name: str, *, session: str, dh_cert: str
    ) -> VirtualMachineInstance:
        """Give a waiting instance the session to start in (both base64); the same twice is once."""

    async def sev_measurement(self, namespace: str, name: str) -> SevMeasurementView: ...
    async def inject_sev_secret(self, namespace: str, name: str, *, header: str, secret: str) -> None:
        """Hand a secret (both base64) to a guest that waits, paused, for it. It is kept nowhere."""

    # What a peer's agent asks (served only to peers).
    async def prepare_migration(self, request: PrepareRequest) -> PrepareReply: ...
    async def finish_migration(
        self, attempt: str, *, succeeded: bool, reason: str, reclaim: bool = False, discard: bool = False
    ) -> TargetState: ...
    async def migration_state(self, attempt: str) -> TargetState: ...
    async def interrupt_migration(self, attempt: str, *, reopen: bool = False) -> TargetState:
        """End a dead stream of a post-copy, or have QEMU wait for another."""
