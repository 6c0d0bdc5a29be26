# SPDX-License-Identifier: Apache-2.0
"""What the agent remembers: one record per instance, outgoing migration and incoming migration. Plain data.

The store keeps these as JSON. libvirt is the truth about what runs; a record is the truth about what was
asked for, what this node decided and how far it got.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from launcher.agent.port import Companions
from launcher.plan.allocations import Allocations
from launcher.plan.devices.model import DiskPlan
from launcher.plan.model import VMPlan
from launcher.plan.steps import AnyStep
from launcher.spec.model import VirtualMachineInstance, VirtualMachineInstanceBackupStatus, Volume
from launcher.spec.model.migration import VirtualMachineInstanceMigrationState

Phase = Literal[
    "Pending", "Scheduling", "Scheduled", "Running", "Succeeded", "Failed", "Unknown", "WaitingForSync"
]
FINAL: frozenset[str] = frozenset({"Succeeded", "Failed"})


class Transition(msgspec.Struct, frozen=True, kw_only=True):
    """A phase and when it was entered (RFC 3339)."""

    phase: str
    at: str


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """A point on the boot clock: seconds since boot, and which boot. It survives the agent, not the host."""

    boot_id: str
    seconds: float


class Firings(msgspec.Struct, frozen=True, kw_only=True):
    """How often the guest's watchdog was not fed, what it did the last time, and when (RFC 3339)."""

    count: int
    action: str
    at: str


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the guest agent took the access credentials, and why not. Nothing of them is in here."""

    done: bool
    why: str = ""


class Notice(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What events and probes told and the state of a domain does not: it must be remembered.

    ``ready`` is what the readiness probe decided, None: nothing yet. ``dead_why`` is why the liveness probe
    gave the guest up; empty: it did not. ``credentials``: None: the guest agent was not told them yet.
    """

    panicked: bool = False
    watchdog: Firings | None = None
    ready: bool | None = None
    unready_why: str = ""
    dead_why: str = ""
    credentials: Delivery | None = None


class DomainJob(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the domain is busy with; QEMU does one such thing at a time, and no migration beside it.

    ``volume`` is the utility volume that it writes to; empty: none.
    """

    kind: Literal["snapshot", "backup", "memory dump"]
    name: str
    volume: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


class MemoryDump(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The last dump of the guest's memory: into which claim, where that lies, and what became of it.

    ``volume`` names it in the status: a volume of the manifest, or the claim. Times are RFC 3339. ``token``
    is part of the file's name until it is whole: a guest that shares the directory can put no link there.
    """

    volume: str
    claim: str
    directory: str
    file: str
    started: str
    phase: Literal["MemoryDumpInProgress", "MemoryDumpCompleted", "MemoryDumpFailed"]
    ended: str = ""
    message: str = ""
    token: str = ""


class Frozen(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The guest's file systems were frozen at ``since``; they thaw after ``thaw_after_s`` (0: never).

    ``copying``: for the moment of a copy, not because somebody asked for it.
    """

    since: Moment
    thaw_after_s: float = 0.0
    copying: bool = False


class PluggedVolume(msgspec.Struct, frozen=True, kw_only=True):
    """A volume that came while the guest ran, as a disk or into a CD-ROM drive, and how far that got.

    ``wanted``: nothing is made of it yet; ``made``: its files are there; ``plugged``: the guest has it.
    """

    name: str
    state: Literal["wanted", "made", "plugged"] = "wanted"


class LeavingDisk(msgspec.Struct, frozen=True, kw_only=True):
    """A disk that the guest is to give back, or a CD-ROM drive with what is to be taken out of it.

    Until that is done the volume is in use; ``steps`` are what was made for it.
    """

    disk: DiskPlan
    steps: tuple[AnyStep, ...] = ()


class VolumeMove(msgspec.Struct, frozen=True, kw_only=True):
    """A volume that the next migration copies to another claim: ``to`` is what it is then."""

    to: Volume

    @property
    def name(self) -> str:
        """The volume."""
        return self.to.name


class InstanceRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One instance on this node.

    ``manifest`` is what the user wrote (with uid and creation time filled in), ``plan`` what this node
    decided. ``desired`` is what the agent drives towards. ``incoming`` names the migration attempt that
    brings the instance here, ``outgoing`` the one that takes it away: while one is set, the domain is the
    migration's. ``user_paused`` is the user's wish and outlives the agent, ``evacuating`` that of who empties
    the node. ``awaits`` names the migration from another control plane for which the
    instance waits, to give way. While ``job`` or ``frozen`` is set the domain is not migrated.
    ``discard_state``: what firmware and TPM remember goes with the instance, even if it was to be kept.
    ``sync_error`` is why it is not as it should be, ``sync_reason`` that in one word, ``sync_volume`` the
    volume that it is about. ``moving`` are the volumes that are to go to other claims, ``staying`` those that
    were to until somebody cancelled it.
    """

    uid: str
    namespace: str
    name: str
    manifest: VirtualMachineInstance
    defaulted: VirtualMachineInstance
    plan: VMPlan
    allocations: Allocations
    companions: Companions = Companions()
    created: str
    boot_id: str
    phase: Phase = "Pending"
    reason: str = ""
    message: str = ""
    transitions: tuple[Transition, ...] = ()
    desired: Literal["running", "deleted"] = "running"
    user_paused: bool = False
    grace_period_s: int | None = None
    deleted_at: str = ""
    discard_state: bool = False
    shutdown_began: Moment | None = None
    prepared: bool = False
    agent_connected: bool = False
    sync_error: str = ""
    sync_reason: str = ""
    sync_volume: str = ""
    plugged: tuple[PluggedVolume, ...] = ()
    leaving: tuple[LeavingDisk, ...] = ()
    moving: tuple[VolumeMove, ...] = ()
    staying: tuple[VolumeMove, ...] = ()
    notice: Notice = Notice()
    incoming: str = ""
    awaits: str = ""
    outgoing: str = ""
    moved_to: str = ""
    evacuating: bool = False
    migration_state: VirtualMachineInstanceMigrationState | None = None
    job: DomainJob | None = None
    frozen: Frozen | None = None
    memory_dump: MemoryDump | None = None
    backup: VirtualMachineInstanceBackupStatus | None = None

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"
