# SPDX-License-Identifier: Apache-2.0
"""What a migration shows: conditions with KubeVirt's names and ours, phases, and what was tried before."""

from __future__ import annotations

from typing import Any

import pytest

from launcher.agent.migration_status import OutgoingEntry, view
from launcher.agent.outgoing_ends import before_the_end
from launcher.migration.attempt import AttemptRecord, Cause, Earlier, Outgoing, Phase, Transition
from launcher.migration.options import Options, Workload
from launcher.migration.progress import MigrationReport
from launcher.spec.model import (
    ObjectMeta,
    VirtualMachineInstanceMigration,
    VirtualMachineInstanceMigrationSpec,
    VirtualMachineInstanceMigrationStatus,
)

OPTIONS = Options(
    network="fast",
    match_selinux_level=True,
    node_drain_taint_key="example.org/drain",
    parallel_migrations_per_cluster=7,
)


def entry(**record: Any) -> OutgoingEntry:
    outgoing = Outgoing(
        attempt="uid",
        namespace="default",
        name="move",
        uuid="u",
        source_node="a",
        target_node="b",
        options=OPTIONS,
        workload=Workload(memory_bytes=1),
    )
    return OutgoingEntry(
        manifest=VirtualMachineInstanceMigration(
            metadata=ObjectMeta(name="move", namespace="default", uid="uid"),
            spec=VirtualMachineInstanceMigrationSpec(vmi_name="vm"),
        ),
        target="b:1",
        uid="vm-uid",
        attempt=AttemptRecord(outgoing=outgoing, **record),
    )


def status(shown: OutgoingEntry) -> VirtualMachineInstanceMigrationStatus:
    found = view(shown, None).object.status
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("record", "conditions"),
    [
        ({}, []),
        (
            {"held": "waits for x"},
            [("migrationBlockedByUtilityVolumes", "UtilityVolumesPresent", "waits for x")],
        ),
        ({"cancel": True}, [("migrationAbortRequested", "Requested", "somebody wants it cancelled")]),
        (
            {
                "phase": Phase.FAILED,
                "cause": Cause.CANCELLED,
                "reason": "no more",
                "cancel": True,
                "held": "x",
            },
            [
                ("Failed", "cancelled", "no more"),
                ("migrationAbortRequested", "Requested", "somebody wants it cancelled"),
            ],
        ),
        (
            {"phase": Phase.RUNNING, "interrupted": "cut", "resumes": 2},
            [("PostCopyInterrupted", "post-copy-failed", "cut (resumed 2 times)")],
        ),
    ],
)
def test_conditions(record: dict[str, Any], conditions: list[tuple[str, str, str]]) -> None:
    found = [(c.type, c.reason, c.message) for c in status(entry(**record)).conditions]
    assert found == conditions


def test_a_second_attempt_is_told_with_the_first() -> None:
    shown = status(
        entry(
            phase=Phase.PREPARING_TARGET,
            transitions=(
                Transition(phase=Phase.RUNNING, at="1"),
                Transition(phase=Phase.PREPARING_TARGET, at="2"),
            ),
            earlier=(
                Earlier(cause=Cause.LINK, reason="dead", at="2", report=MigrationReport(succeeded=False)),
            ),
        )
    )
    (retried,) = shown.conditions
    assert (retried.type, retried.reason, retried.message) == (
        "Retried",
        "link",
        "an earlier attempt ended: dead",
    )
    assert shown.phase == "PreparingTarget"
    assert shown.migration_state is not None
    assert (shown.migration_state.start_timestamp, shown.migration_state.completed) == ("1", None)


def test_options_that_are_for_others_are_passed_on() -> None:
    state = status(entry()).migration_state
    assert state is not None
    assert state.migration_network_type == "migration"
    options = state.migration_configuration
    assert options is not None
    assert options.network == "fast"
    assert options.match_selinux_level_on_migration is True
    assert options.node_drain_taint_key == "example.org/drain"
    assert options.parallel_migrations_per_cluster == 7


def test_the_end_is_not_shown_before_it_is_settled() -> None:
    ended = entry(
        phase=Phase.FAILED,
        transitions=(Transition(phase=Phase.RUNNING, at="1"), Transition(phase=Phase.FAILED, at="2")),
        report=MigrationReport(succeeded=False),
    )
    assert view(before_the_end(ended), None).report is None
    assert status(before_the_end(ended)).phase == "Running"
