# SPDX-License-Identifier: Apache-2.0
"""What becomes of the instance when its migration has ended."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from launcher.agent.records import InstanceRecord
from launcher.agent.settlement import HANDS_OFF, arrived, settled
from launcher.migration.attempt import AttemptRecord, Cause, Outgoing, Phase
from launcher.migration.options import Options, Workload
from launcher.spec.model import VirtualMachineInstanceMigrationState

MakeRecord = Callable[..., InstanceRecord]
STATE = VirtualMachineInstanceMigrationState(completed=True)
OUTGOING = Outgoing(
    attempt="a-1",
    namespace="default",
    name="vm",
    uuid="u",
    source_node="a",
    target_node="b",
    options=Options(),
    workload=Workload(memory_bytes=1),
)


def ended(make_record: MakeRecord, phase: Phase, **changes: object) -> InstanceRecord:
    attempt = msgspec.structs.replace(AttemptRecord(outgoing=OUTGOING, phase=phase), **changes)
    record = make_record(prepared=True, phase="Running", outgoing="a-1")
    return settled(record, attempt, STATE, at="now")


def test_a_guest_that_moved_is_let_go_when_the_target_confirmed(make_record: MakeRecord) -> None:
    unheard = ended(make_record, Phase.SUCCEEDED)
    assert (unheard.outgoing, unheard.moved_to) == ("a-1", "")
    confirmed = ended(make_record, Phase.SUCCEEDED, confirmed=True)
    assert (confirmed.outgoing, confirmed.moved_to, confirmed.migration_state) == ("", "b", STATE)


@pytest.mark.parametrize("cause", [cause for cause in Cause if cause])
def test_only_what_is_in_doubt_keeps_the_instance(make_record: MakeRecord, cause: Cause) -> None:
    record = ended(make_record, Phase.FAILED, cause=cause)
    assert (record.outgoing, record.phase) == ("a-1" if cause in HANDS_OFF else "", "Running")


def test_a_guest_that_was_lost_in_halves_has_failed(make_record: MakeRecord) -> None:
    record = ended(make_record, Phase.FAILED, cause=Cause.LOST, given_up="its disks are crash-consistent")
    assert (record.outgoing, record.phase, record.reason) == ("", "Failed", "PostcopyFailed")
    assert record.message == "its disks are crash-consistent"


def test_a_guest_that_powered_off_in_halves_has_succeeded(make_record: MakeRecord) -> None:
    record = ended(make_record, Phase.FAILED, cause=Cause.GUEST_ENDED, given_up="the guest ended")
    assert (record.outgoing, record.phase, record.reason) == ("", "Succeeded", "")


def test_where_the_guest_came_the_migration_is_completed(make_record: MakeRecord) -> None:
    under_way = VirtualMachineInstanceMigrationState(migration_uid="a-1", start_timestamp="before")
    coming = make_record(phase="Scheduled", incoming="a-1", migration_state=under_way)
    here = arrived(coming, at="now")
    assert (here.incoming, here.phase, here.prepared) == ("", "Running", True)
    state = here.migration_state
    assert state is not None
    assert (state.migration_uid, state.start_timestamp) == ("a-1", "before")
    assert (state.completed, state.end_timestamp) == (True, "now")
    assert state.target_node_domain_ready_timestamp == "now"
