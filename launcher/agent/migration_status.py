# SPDX-License-Identifier: Apache-2.0
"""Migrations as the API shows them: the object's status, and the instance's migrationState. Pure."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from launcher.agent.port import MigrationView
from launcher.agent.records import InstanceRecord
from launcher.errors import Conflict
from launcher.migration.attempt import AttemptRecord, Cause, Phase
from launcher.migration.options import to_migration_configuration
from launcher.migration.progress import MigrationProgress
from launcher.spec.model import (
    VirtualMachineInstanceMigration,
    VirtualMachineInstanceMigrationCondition,
    VirtualMachineInstanceMigrationPhaseTransitionTimestamp,
    VirtualMachineInstanceMigrationState,
    VirtualMachineInstanceMigrationStatus,
)


class OutgoingEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A migration away from this node, as it is stored: what was asked for, where to, and how far it got.

    ``deleted``: it is to be forgotten when it has ended.
    """

    manifest: VirtualMachineInstanceMigration
    target: str
    uid: str
    attempt: AttemptRecord
    deleted: bool = False

    @property
    def key(self) -> str:
        """``namespace/name`` of the migration."""
        metadata = self.manifest.metadata
        assert metadata is not None, "a stored migration is identified"
        return f"{metadata.namespace}/{metadata.name}"


def view(entry: OutgoingEntry, progress: MigrationProgress | None) -> MigrationView:
    """The migration with its status, its progress while it runs and its report when it ended."""
    attempt = entry.attempt
    status = VirtualMachineInstanceMigrationStatus(
        phase=attempt.phase.value,
        phase_transition_timestamps=tuple(
            VirtualMachineInstanceMigrationPhaseTransitionTimestamp(
                phase=transition.phase.value, phase_transition_timestamp=transition.at
            )
            for transition in attempt.transitions
        ),
        migration_state=migration_state(entry),
        conditions=tuple(_conditions(attempt)),
    )
    return MigrationView(
        object=msgspec.structs.replace(entry.manifest, status=status),
        progress=progress if not attempt.phase.final else None,
        report=attempt.report,
    )


def tied(record: InstanceRecord, entry: OutgoingEntry) -> InstanceRecord:
    """The record of an instance that the migration takes; raises Conflict when it may not."""
    if record.outgoing:
        raise Conflict(f"{record.key} is migrating already", hint="wait for it, or cancel it")
    if record.job is not None:
        raise Conflict(f"{record.key} is not migrated during its {record.job}", hint="wait for it")
    if record.frozen is not None:
        raise Conflict(f"{record.key} is not migrated frozen", hint="unfreeze it first")
    return msgspec.structs.replace(
        record, outgoing=entry.attempt.attempt, migration_state=migration_state(entry)
    )


def migration_state(entry: OutgoingEntry) -> VirtualMachineInstanceMigrationState:
    """``status.migrationState``, of the migration and of its instance alike."""
    attempt = entry.attempt
    outgoing = attempt.outgoing
    return VirtualMachineInstanceMigrationState(
        migration_uid=attempt.attempt,
        source_node=outgoing.source_node,
        target_node=attempt.reply.node if attempt.reply is not None else outgoing.target_node,
        target_node_address=entry.target,
        start_timestamp=_first(attempt, Phase.RUNNING),
        end_timestamp=_last(attempt, Phase.SUCCEEDED) or _last(attempt, Phase.FAILED),
        completed=True if attempt.phase.final else None,
        failed=True if attempt.phase is Phase.FAILED else None,
        failure_reason=attempt.reason or None if attempt.phase is Phase.FAILED else None,
        abort_requested=True if attempt.cancel else None,
        abort_status=_abort_status(attempt),
        mode="PostCopy" if attempt.post_copy else "Paused" if attempt.suspended else "PreCopy",
        migration_network_type="migration" if attempt.network else "pod",
        migration_policy_name=outgoing.migration_policy or None,
        migration_configuration=to_migration_configuration(outgoing.options),
    )


def _abort_status(attempt: AttemptRecord) -> str | None:
    if not attempt.cancel:
        return None
    if not attempt.phase.final:
        return "Aborting"
    return "Succeeded" if attempt.cause is Cause.CANCELLED else "Failed"


def _conditions(attempt: AttemptRecord) -> Iterator[VirtualMachineInstanceMigrationCondition]:
    """KubeVirt's where it has one (with a small letter), and ours. The first tells what holds now."""
    if attempt.phase is Phase.FAILED:
        yield _condition("Failed", attempt.cause.value, attempt.reason, _last(attempt, Phase.FAILED))
    if attempt.interrupted and not attempt.phase.final:
        message = f"{attempt.interrupted} (resumed {attempt.resumes} times)"
        yield _condition("PostCopyInterrupted", Cause.POST_COPY_FAILED.value, message)
    if attempt.held and not attempt.phase.final:
        yield _condition("migrationBlockedByUtilityVolumes", "UtilityVolumesPresent", attempt.held)
    if attempt.cancel:
        yield _condition("migrationAbortRequested", "Requested", "somebody wants it cancelled")
    for earlier in attempt.earlier:
        yield _condition(
            "Retried", earlier.cause.value, f"an earlier attempt ended: {earlier.reason}", earlier.at
        )


def _condition(
    kind: str, reason: str, message: str, at: str | None = None
) -> VirtualMachineInstanceMigrationCondition:
    return VirtualMachineInstanceMigrationCondition(
        type=kind, status="True", reason=reason, message=message, last_transition_time=at
    )


def _first(attempt: AttemptRecord, phase: Phase) -> str | None:
    return next((told.at for told in attempt.transitions if told.phase is phase), None)


def _last(attempt: AttemptRecord, phase: Phase) -> str | None:
    return next((told.at for told in reversed(attempt.transitions) if told.phase is phase), None)
