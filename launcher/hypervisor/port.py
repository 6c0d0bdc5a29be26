# SPDX-License-Identifier: Apache-2.0
"""What the rest of launcher sees of the hypervisor: records, events and one protocol. No libvirt here.

``driver.py`` implements the protocol on libvirt; a fake stands in only for faults that cannot be provoked.
All sizes are bytes, all durations seconds unless the name says otherwise. Domains are named by UUID text.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Protocol


class DomainState(StrEnum):
    """virDomainState, by name."""

    NOSTATE = "nostate"
    RUNNING = "running"
    BLOCKED = "blocked"
    PAUSED = "paused"
    SHUTDOWN = "shutdown"
    SHUTOFF = "shutoff"
    CRASHED = "crashed"
    PMSUSPENDED = "pmsuspended"


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainRecord:
    """One domain as libvirt reports it now.

    ``reason`` is libvirt's name of the state's reason in lower case with dashes: ``booted``, ``user``,
    ``migration``, ``post-copy``, ``post-copy-failed``, ``ioerror``, ``migrated``, ``destroyed`` …
    """

    uuid: str
    name: str
    state: DomainState
    reason: str
    persistent: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStats:
    """Statistics of a domain job. Absent numbers are None: libvirt leaves out what it does not know.

    ``kind`` is ``none``, ``bounded``, ``unbounded``, ``completed``, ``failed`` or ``cancelled``;
    ``operation`` names it (``migration-out``, ``migration-in``, ``backup`` …).
    """

    kind: str
    operation: str = ""
    time_elapsed_ms: int | None = None
    time_elapsed_net_ms: int | None = None
    downtime_ms: int | None = None
    downtime_net_ms: int | None = None
    setup_time_ms: int | None = None
    data_total: int | None = None
    data_processed: int | None = None
    data_remaining: int | None = None
    memory_total: int | None = None
    memory_processed: int | None = None
    memory_remaining: int | None = None
    memory_bps: int | None = None
    memory_dirty_rate_pages: int | None = None
    memory_page_size: int | None = None
    memory_iteration: int | None = None
    memory_constant_pages: int | None = None
    memory_normal_pages: int | None = None
    memory_normal_bytes: int | None = None
    memory_postcopy_requests: int | None = None
    disk_total: int | None = None
    disk_processed: int | None = None
    disk_remaining: int | None = None
    disk_bps: int | None = None
    auto_converge_throttle: int | None = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class LifecycleEvent:
    """virDomainEventType and its detail by name, lower case with dashes: ``started``/``booted``,
    ``suspended``/``paused``, ``resumed``/``migrated``, ``stopped``/``shutdown`` …"""

    uuid: str
    name: str
    event: str
    detail: str


@dataclass(frozen=True, slots=True)
class MigrationIterationEvent:
    """A pre-copy pass began on the source."""

    uuid: str
    iteration: int


@dataclass(frozen=True, slots=True)
class JobCompletedEvent:
    """A job ended; on the source of a migration ``stats`` are the final ones."""

    uuid: str
    stats: JobStats


@dataclass(frozen=True, slots=True)
class AgentLifecycleEvent:
    """The guest agent connected or went away."""

    uuid: str
    connected: bool


@dataclass(frozen=True, slots=True)
class IoErrorEvent:
    """A disk error; ``reason`` is ``enospc`` or empty, ``action`` is ``none``, ``pause`` or ``report``."""

    uuid: str
    device: str
    action: str
    reason: str


@dataclass(frozen=True, slots=True)
class MemoryDeviceEvent:
    """The guest took or gave memory of a virtio-mem device: it has ``size`` bytes of it now."""

    uuid: str
    alias: str
    size: int


@dataclass(frozen=True, slots=True)
class WatchdogEvent:
    """The guest's watchdog was not fed. ``action`` is what it did: ``reset``, ``poweroff``, ``shutdown`` …"""

    uuid: str
    action: str


@dataclass(frozen=True, slots=True)
class DeviceRemovedEvent:
    """The guest gave a device back; ``alias`` is libvirt's, with the prefix of those we chose."""

    uuid: str
    alias: str


@dataclass(frozen=True, slots=True)
class DeviceKeptEvent:
    """The guest refused to give a device back; ``alias`` as in ``DeviceRemovedEvent``."""

    uuid: str
    alias: str


@dataclass(frozen=True, slots=True)
class ConnectionEvent:
    """The connection to libvirt came up (again) or went down. After ``up`` everything must be read anew."""

    up: bool
    why: str = ""


Event = (
    LifecycleEvent
    | MigrationIterationEvent
    | JobCompletedEvent
    | AgentLifecycleEvent
    | IoErrorEvent
    | MemoryDeviceEvent
    | WatchdogEvent
    | DeviceRemovedEvent
    | DeviceKeptEvent
    | ConnectionEvent
)


class MigrateFlag(StrEnum):
    """VIR_MIGRATE_* flags that the engine uses."""

    LIVE = "live"
    PEER2PEER = "peer2peer"
    PERSIST_DEST = "persist-dest"
    UNDEFINE_SOURCE = "undefine-source"
    PAUSED = "paused"
    NON_SHARED_INC = "non-shared-inc"
    UNSAFE = "unsafe"
    AUTO_CONVERGE = "auto-converge"
    POSTCOPY = "postcopy"
    POSTCOPY_RESUME = "postcopy-resume"
    PARALLEL = "parallel"
    COMPRESSED = "compressed"
    TLS = "tls"
    ABORT_ON_ERROR = "abort-on-error"


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrateParams:
    """Arguments of one peer-to-peer migration.

    ``destination_uri`` is the target's libvirtd as the source's libvirtd reaches it; ``migrate_uri``
    where the target's QEMU listens (``tcp://ADDRESS:PORT`` or ``unix:///PATH``), on ``listen_address`` alone
    (empty: as its libvirt is configured); ``bandwidth_mib`` is in MiB/s, 0 for no limit.
    """

    destination_uri: str
    migrate_uri: str = ""
    flags: frozenset[MigrateFlag] = frozenset()
    destination_xml: str = ""
    persistent_xml: str = ""
    bandwidth_mib: int = 0
    parallel_connections: int = 0
    migrate_disks: tuple[str, ...] = ()
    detect_zeroes: tuple[str, ...] = ()  # Of migrate_disks: their zeroes are not sent (libvirt >= 10.9).
    disks_uri: str = ""
    compression: str = ""
    tls_destination: str = ""
    listen_address: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostTexts:
    """What libvirt says of the host, unparsed. Versions are libvirt's integers (9.0.0 is 9000000)."""

    libvirt_version: int
    hypervisor_version: int
    hostname: str
    capabilities: str
    domain_capabilities: dict[str, str] = field(default_factory=dict)
    """Domain capabilities XML by ``"ARCH/VIRTTYPE"``, e.g. ``x86_64/kvm`` and ``x86_64/qemu``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SevPlatform:
    """What the owner of a SEV guest needs to know of its host (virNodeGetSEVInfo).

    ``pdh`` is the platform's Diffie-Hellman key, ``cert_chain`` the certificates that vouch for it,
    ``cpu0_id`` the id that its chip's own certificate is asked for by: base64 all three. Counts are 0 where
    libvirt does not tell.
    """

    pdh: str
    cert_chain: str
    cpu0_id: str = ""
    cbitpos: int = 0
    reduced_phys_bits: int = 0
    max_guests: int = 0
    max_es_guests: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SevMeasurement:
    """What SEV's firmware measured of a guest (virDomainGetLaunchSecurityInfo); ``measurement`` is base64."""

    measurement: str
    api_major: int = 0
    api_minor: int = 0
    build_id: int = 0
    policy: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainUsage:
    """What a running domain has and used so far: ``cpu_time_s`` of its vCPUs together, ``memory`` in bytes
    (as its balloon leaves it)."""

    cpu_time_s: float
    vcpus: int
    memory: int


def qemu_uri(migrate_uri: str) -> str:
    """``tcp://HOST:PORT`` or ``unix:///PATH``, which libvirt takes, as QEMU spells it."""
    return migrate_uri.replace("://", ":", 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkUsage:
    """What went over an interface since it was plugged, as the guest sees it: bytes, packets, packets with
    errors and dropped ones. ``link`` is the device on the host."""

    link: str
    rx_bytes: int = 0
    rx_packets: int = 0
    rx_errors: int = 0
    rx_dropped: int = 0
    tx_bytes: int = 0
    tx_packets: int = 0
    tx_errors: int = 0
    tx_dropped: int = 0


class Hypervisor(Protocol):
    """A connection to one libvirtd. Every call has a deadline and raises only ``launcher.errors`` classes:
    NotFound, AlreadyExists, Conflict, WrongPhase, HostUnsupported, TimedOut, HypervisorUnavailable, Denied,
    GuestAgentError, MigrationAborted, MigrationFailed, HypervisorError. Conflict also refuses, at once,
    calls on a domain whose earlier calls hang; only reads of its state and destroy get through then."""

    @property
    def connected(self) -> bool: ...
    def subscribe(self, listener: Callable[[Event], None]) -> Callable[[], None]:
        """Call ``listener`` on the event loop for each event; returns the function that unsubscribes."""

    async def start(self) -> None:
        """Begin connecting; returns at once, the state is told by ConnectionEvents."""

    async def close(self) -> None: ...
    async def host_texts(self) -> HostTexts: ...
    async def domain_capabilities(self, arch: str, machine: str) -> tuple[str, ...]:
        """Domain capabilities XML of a machine, one text for each virtualisation type."""

    async def list_domains(self) -> tuple[DomainRecord, ...]: ...
    async def domain(self, uuid: str) -> DomainRecord: ...
    async def domain_xml(self, uuid: str, *, inactive: bool = False, migratable: bool = False) -> str: ...
    async def define(self, xml: str) -> str:
        """Define a persistent domain and return its UUID."""

    async def create(self, uuid: str, *, paused: bool = False) -> None:
        """Start a defined domain."""

    async def suspend(self, uuid: str) -> None: ...
    async def resume(self, uuid: str) -> None: ...
    async def shutdown(self, uuid: str) -> None:
        """Ask the guest to power off (agent if connected, then ACPI)."""

    async def reset(self, uuid: str) -> None: ...
    async def destroy(self, uuid: str, *, graceful: bool = True) -> None:
        """End the QEMU process; a domain that is not running is a success."""

    async def undefine(self, uuid: str, *, keep_nvram: bool = False) -> None:
        """Forget a domain; one that does not exist is a success."""

    async def set_vcpus(self, uuid: str, count: int) -> None:
        """Let the domain have ``count`` of its possible vCPUs, now and at its next start."""

    async def pin_vcpu(self, uuid: str, vcpu: int, cpus: tuple[int, ...]) -> None:
        """Let a vCPU, plugged already or not, run on ``cpus`` only."""

    async def attach_device(self, uuid: str, xml: str) -> None: ...
    async def update_device(self, uuid: str, xml: str) -> None: ...
    async def detach_device(self, uuid: str, xml: str) -> None:
        """Ask the guest for a device; asking again, or for one that is gone, is a success."""

    async def plugged(self, uuid: str, aliases: tuple[str, ...]) -> tuple[str, ...]:
        """Those of ``aliases`` (without the prefix of those we choose) whose devices the guest has."""

    async def ask_back(self, uuid: str, alias: str) -> None:
        """``detach_device`` of the device with that alias, whatever it is."""

    async def disk_size(self, uuid: str, target: str) -> int:
        """Bytes that the guest sees of the disk ``target`` (``vda`` …)."""

    async def resize_disk(self, uuid: str, target: str, size: int) -> None:
        """Let the guest see ``size`` bytes of the disk; an image file grows with it."""

    async def disk_errors(self, uuid: str) -> dict[str, str]:
        """Disks with an I/O error by target: ``no-space`` or ``unspecified``."""

    async def copy_disk(
        self, uuid: str, target: str, xml: str, *, bandwidth_bps: int = 0, in_step: bool = False
    ) -> None:
        """Begin to copy a disk to what ``xml`` names; ``in_step``: the guest's writes wait for the copy."""

    async def disk_copy_progress(self, uuid: str, target: str) -> tuple[int, int] | None: ...
    async def end_disk_copy(self, uuid: str, target: str, *, pivot: bool) -> None:
        """Let the guest write to the copy of a disk from now on, or forget the copy."""

    async def sev_platform(self) -> SevPlatform: ...
    async def sev_measurement(self, uuid: str) -> SevMeasurement: ...
    async def inject_sev_secret(self, uuid: str, *, header: str, secret: str) -> None:
        """Hand a secret (both base64) to a SEV guest that has not run yet."""

    async def agent_command(self, uuid: str, command: str, *, timeout_s: int) -> str:
        """Hand a command (JSON) to the guest agent and return its answer; GuestAgentError without one."""

    async def usage(self, uuid: str) -> DomainUsage: ...
    async def links(self, *, timeout_s: float) -> dict[str, tuple[LinkUsage, ...]]:
        """What went over the interfaces of all running domains, by UUID; it waits for none of them."""

    async def begin_backup(self, uuid: str, xml: str, checkpoint_xml: str = "") -> None:
        """Begin to copy disks as they are now, and make a checkpoint of now; the job's end is an event."""

    async def backup_xml(self, uuid: str) -> str:
        """The backup job under way; empty without one."""

    async def checkpoints(self, uuid: str) -> frozenset[str]: ...
    async def checkpoint_xml(self, uuid: str, name: str) -> str: ...
    async def redefine_checkpoint(self, uuid: str, xml: str) -> None:
        """Make a checkpoint known again whose bitmaps are in the images; an error when they are not."""

    async def delete_checkpoint(self, uuid: str, name: str) -> None:
        """Forget a checkpoint; one that does not exist is a success."""

    async def dump_memory(self, uuid: str, path: Path, *, timeout_s: float) -> None:
        """Write the guest's memory to a new file as an ELF core; the guest waits."""

    async def job_stats(self, uuid: str) -> JobStats: ...
    async def completed_job_stats(self, uuid: str) -> JobStats: ...
    async def migrate(self, uuid: str, params: MigrateParams) -> None:
        """Run a migration to its end; occupies its own lane, so nothing else waits for it."""

    async def set_max_downtime(self, uuid: str, milliseconds: int) -> None: ...
    async def set_max_speed(self, uuid: str, mib_per_s: int) -> None: ...
    async def start_postcopy(self, uuid: str) -> None: ...
    async def abort_job(self, uuid: str) -> None: ...
    async def pause_post_copy(self, uuid: str) -> None:
        """Interrupt a migration in post-copy, so that it can be resumed on another connection."""

    async def stream_status(self, uuid: str) -> str: ...
    async def end_cancelled(self, uuid: str) -> None: ...
    async def resume_stream(self, uuid: str, migrate_uri: str) -> None:
        """Resume an interrupted post-copy past libvirt, when the target's QEMU waits for it."""

    async def set_metadata(self, uuid: str, xml: str, *, prefix: str, namespace: str) -> None: ...
    async def migration_compatible(self, xml: str) -> tuple[str, ...]:
        """Compare the guest CPU of ``xml`` with this host; what would refuse it (empty: fine)."""
