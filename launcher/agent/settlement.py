# SPDX-License-Identifier: Apache-2.0
"""What the end of a migration makes of the instance, where it was to leave and where it came. Pure."""

from __future__ import annotations

import msgspec

from launcher.agent.machine import enter
from launcher.agent.records import InstanceRecord
from launcher.agent.volume_moves import withdrawn
from launcher.migration.attempt import AttemptRecord, Cause, Phase
from launcher.spec.model import VirtualMachineInstanceMigrationState

# The guest may be in two halves or its owner unproven: nothing here touches it until somebody decides.
HANDS_OFF = frozenset({Cause.POST_COPY_FAILED, Cause.CONFLICT, Cause.UNRESOLVED})


def settled(
    record: InstanceRecord, attempt: AttemptRecord, state: VirtualMachineInstanceMigrationState, *, at: str
) -> InstanceRecord:
    """The record after ``attempt`` ended, ``at`` being the time now."""
    replace = msgspec.structs.replace
    if attempt.phase is Phase.SUCCEEDED:
        moved = attempt.outgoing.target_node if attempt.confirmed else ""
        held = "" if attempt.confirmed else record.outgoing
        return replace(record, outgoing=held, moved_to=moved, migration_state=state)
    held = record.outgoing if attempt.cause in HANDS_OFF else ""
    record = withdrawn(record) if attempt.cause is Cause.CANCELLED else record
    record = replace(record, outgoing=held, migration_state=state)
    if not attempt.given_up or held:
        return record
    # Neither half says any more how the guest ended.
    if attempt.cause is Cause.GUEST_ENDED:
        return enter(record, "Succeeded", at=at)
    return enter(record, "Failed", "PostcopyFailed", attempt.given_up, at=at)


def arrived(record: InstanceRecord, *, at: str) -> InstanceRecord:
    """The record at the target when all of the guest is there and runs, ``at`` being the time now."""
    state = record.migration_state
    if state is not None:
        state = msgspec.structs.replace(
            state, completed=True, end_timestamp=at, target_node_domain_ready_timestamp=at
        )
    here = msgspec.structs.replace(record, incoming="", prepared=True, migration_state=state)
    return enter(here, "Running", at=at)
