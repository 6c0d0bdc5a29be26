# SPDX-License-Identifier: Apache-2.0
"""The record of one outgoing migration: all that another process needs to carry it on. Records only.

Nothing secret is in here: the manifest and what travels beside it stay with the agent (``Material``).
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from launcher.migration.cause import Cause as Cause
from launcher.migration.options import Options, Workload
from launcher.migration.peer import MovedDisk, MovingDevice, PrepareReply, SharedDisk
from launcher.migration.progress import MigrationReport


class Phase(StrEnum):
    """Phases of a VirtualMachineInstanceMigration, by the API's names."""

    PENDING = "Pending"
    PREPARING_TARGET = "PreparingTarget"
    TARGET_READY = "TargetReady"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"

    @property
    def final(self) -> bool:
        """Nothing follows."""
        return self in (Phase.SUCCEEDED, Phase.FAILED)


class CancelAnswer(StrEnum):
    """What became of a request to cancel, as far as it is known when it returns."""

    ACCEPTED = "accepted"
    TOO_LATE = "too-late"
    ENDED = "ended"


class Transition(msgspec.Struct, frozen=True, kw_only=True):
    """A phase and when it was entered (RFC 3339)."""

    phase: Phase
    at: str


class Outgoing(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be migrated, where to and how. ``attempt`` is the uid of the migration object.

    ``uuid`` names the domain. ``user_paused``: the guest is paused on purpose and stays so on the target
    (the engine looks again when it begins).
    ``migrate_disks`` are the target names (``vda``) of disks the migration copies; empty: none are.
    ``parallel`` connections are used only where the other options allow it. ``policy`` is a name known
    to ``compose.make_policy``; ``migration_policy`` names the MigrationPolicy that gave options, ``priority``
    is the API's. ``unplug`` are the aliases of devices that the guest gives back before it moves; the target
    plugs its own.
    """

    attempt: str
    namespace: str
    name: str
    uuid: str
    source_node: str
    target_node: str
    options: Options
    workload: Workload
    policy: str = "standard"
    migration_policy: str = ""
    priority: str = ""
    user_paused: bool = False
    migrate_disks: tuple[str, ...] = ()
    parallel: int = 0
    tls: bool = False
    migration_id: str = ""
    unplug: tuple[str, ...] = ()


class Material(msgspec.Struct, frozen=True, kw_only=True):
    """What ``prepare`` sends besides the domain's XML; see ``PrepareRequest``. May hold secrets."""

    vmi: str
    companions: str = ""
    libvirt_version: int = 0
    qemu_version: int = 0
    deadline_s: float = 0.0
    disks: tuple[SharedDisk, ...] = ()
    copied_bytes: int = 0
    notice: str = ""
    moved: tuple[MovedDisk, ...] = ()
    devices: tuple[MovingDevice, ...] = ()


class StepTaken(msgspec.Struct, frozen=True, kw_only=True):
    """An action as it was performed, ``t`` seconds after the job began."""

    t: float
    action: str
    reason: str


class Earlier(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt of the same migration that ended before this one; ``at`` is when (RFC 3339)."""

    cause: Cause
    reason: str
    at: str
    report: MigrationReport


class AttemptRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Everything known of an attempt; saved before each thing that cannot be taken back.

    ``job_began`` is monotonic time of this boot (a migration does not outlive the host's).
    ``suspended``: the engine itself stopped the guest. ``cancel``: somebody wants it cancelled.
    ``call_error`` is what the migrate call said at its end.
    ``interrupted`` is why post-copy stands still, since ``interrupted_at`` (as ``job_began``), empty while it
    does not; it was resumed ``resumes`` times, and ``crashes`` times the target's libvirtd ended by that.
    ``held`` is what it waits for before it takes its turn, a sentence; empty: nothing.
    ``untold``: the guest stayed, and the target has not heard that yet. ``discarded``: the guest was given
    up, and the target is told to end its half. ``given_up`` says why both halves are ended, before they are.
    ``confirmed``: the target said that it owns the guest, and the source forgot the domain.
    ``earlier`` is what was tried before within this migration, ``over`` the network that this attempt takes
    instead of the one of its options. ``by_hand``: somebody had it looked at again; nothing is begun anew.
    """

    outgoing: Outgoing
    phase: Phase = Phase.PENDING
    transitions: tuple[Transition, ...] = ()
    reply: PrepareReply | None = None
    job_began: float | None = None
    policy_state: str = ""
    max_downtime_ms: int | None = None
    suspended: bool = False
    post_copy: bool = False
    interrupted: str = ""
    interrupted_at: float | None = None
    resumes: int = 0
    crashes: int = 0
    cancel: bool = False
    abort_cause: Cause = Cause.NONE
    abort_reason: str = ""
    steps: tuple[StepTaken, ...] = ()
    call_error: str = ""
    cause: Cause = Cause.NONE
    reason: str = ""
    confirmed: bool = False
    held: str = ""
    untold: bool = False
    discarded: bool = False
    given_up: str = ""
    report: MigrationReport | None = None
    earlier: tuple[Earlier, ...] = ()
    over: str | None = None
    by_hand: bool = False

    @property
    def attempt(self) -> str:
        """The uid of the migration object."""
        return self.outgoing.attempt

    @property
    def tokens(self) -> tuple[str, ...]:
        """What this attempt and those before it are called between the two agents; this one is the last."""
        later = (f"{self.attempt}-{number + 2}" for number in range(len(self.earlier)))
        return (self.attempt, *later)

    @property
    def token(self) -> str:
        """What this attempt is called between the two agents, and its recording."""
        return self.tokens[-1]

    @property
    def network(self) -> str:
        """The migration network that this attempt takes; empty: the usual one."""
        return self.outgoing.options.network if self.over is None else self.over


def reopened(record: AttemptRecord, at: str) -> AttemptRecord:
    """The record of an attempt that ended in doubt, to be run again from where its job is gone."""
    return msgspec.structs.replace(
        record,
        phase=Phase.RUNNING,
        transitions=(*record.transitions, Transition(phase=Phase.RUNNING, at=at)),
        cancel=False,
        interrupted="",
        interrupted_at=None,
        crashes=0,
        given_up="",
        cause=Cause.NONE,
        reason="",
        report=None,
        by_hand=True,
    )


def begin(outgoing: Outgoing) -> AttemptRecord:
    """The record of a new attempt."""
    return AttemptRecord(outgoing=outgoing)


def encode(record: AttemptRecord) -> str:
    """The record as JSON text, for the journal."""
    return msgspec.json.encode(record).decode()


def decode(text: str) -> AttemptRecord:
    """The record from ``encode``; ``msgspec.DecodeError`` when it is none."""
    return msgspec.json.decode(text, type=AttemptRecord)
