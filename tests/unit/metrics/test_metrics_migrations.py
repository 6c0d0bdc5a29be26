# SPDX-License-Identifier: Apache-2.0
"""Migrations under the names that KubeVirt's have: what runs, how it ended, what needs a person."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from launcher.agent.port import MigrationView
from launcher.metrics.migrations import migration_families
from launcher.migration.progress import MigrationProgress, MigrationReport
from launcher.spec.model import (
    ObjectMeta,
    VirtualMachineInstanceMigration,
    VirtualMachineInstanceMigrationCondition,
    VirtualMachineInstanceMigrationSpec,
    VirtualMachineInstanceMigrationState,
    VirtualMachineInstanceMigrationStatus,
)

LABELS = 'name="web",namespace="lab",node="here"'
ENDED = 'namespace="lab",node="here",vmi="web",vmim="move"'


class _Once(Collector):
    def __init__(self, *views: MigrationView) -> None:
        self._views = views

    def collect(self) -> Iterator[Metric]:
        yield from migration_families("here", self._views)


def _lines(*views: MigrationView) -> list[str]:
    registry = CollectorRegistry()
    registry.register(_Once(*views))
    return [line for line in generate_latest(registry).decode().splitlines() if not line.startswith("#")]


def _view(
    phase: str,
    *conditions: tuple[str, str],
    progress: MigrationProgress | None = None,
    report: MigrationReport | None = None,
    ended: str | None = None,
) -> MigrationView:
    status = VirtualMachineInstanceMigrationStatus(
        phase=phase,
        conditions=tuple(
            VirtualMachineInstanceMigrationCondition(type=kind, status="True", reason=reason)
            for kind, reason in conditions
        ),
        migration_state=VirtualMachineInstanceMigrationState(
            start_timestamp=None if phase == "Pending" else "1970-01-01T00:01:40Z", end_timestamp=ended
        ),
    )
    migration = VirtualMachineInstanceMigration(
        metadata=ObjectMeta(name="move", namespace="lab"),
        spec=VirtualMachineInstanceMigrationSpec(vmi_name="web"),
        status=status,
    )
    return MigrationView(object=migration, progress=progress, report=report)


def test_a_migration_under_way() -> None:
    progress = MigrationProgress(
        phase="Running",
        elapsed_s=3.0,
        iteration=4,
        total=100,
        processed=60,
        remaining=50,
        bandwidth_bps=7,
        dirty_rate_bps=9,
        max_downtime_ms=257,
        predicted_downtime_ms=300,
        eta_s=7.1,
    )
    lines = _lines(_view("Running", progress=progress))
    assert [line for line in lines if "{" + LABELS in line] == [
        f"kubevirt_vmi_migration_data_total_bytes{{{LABELS}}} 100.0",
        f"kubevirt_vmi_migration_data_processed_bytes{{{LABELS}}} 60.0",
        f"kubevirt_vmi_migration_data_remaining_bytes{{{LABELS}}} 50.0",
        f"kubevirt_vmi_migration_dirty_memory_rate_bytes{{{LABELS}}} 9.0",
        f"kubevirt_vmi_migration_memory_transfer_rate_bytes{{{LABELS}}} 7.0",
        f"launcher_migration_passes{{{LABELS}}} 4.0",
        f"launcher_migration_downtime_limit_seconds{{{LABELS}}} 0.257",
        f"launcher_migration_predicted_downtime_seconds{{{LABELS}}} 0.3",
        f"launcher_migration_eta_seconds{{{LABELS}}} 7.1",
    ]
    assert 'kubevirt_vmi_migrations_in_running_phase{node="here"} 1.0' in lines
    assert any(
        line.startswith("kubevirt_vmi_migration_start_time_seconds{") and line.endswith("} 100.0")
        for line in lines
    )
    assert not any(line.startswith("kubevirt_vmi_migration_end_time") for line in lines)
    assert not any("_succeeded{" in line or "_failed{" in line for line in lines)


def test_migrations_that_ended() -> None:
    report = MigrationReport(succeeded=True, downtime_ms=250)
    lines = _lines(_view("Succeeded", report=report, ended="1970-01-01T00:03:20Z"))
    assert f"kubevirt_vmi_migration_succeeded{{{ENDED}}} 1.0" in lines
    assert f"kubevirt_vmi_migration_failed{{{ENDED}}} 0.0" in lines
    assert f"launcher_migration_downtime_seconds{{{ENDED}}} 0.25" in lines
    assert [line for line in lines if line.startswith("kubevirt_vmi_migration_end_time_seconds")] == [
        'kubevirt_vmi_migration_end_time_seconds{migration_name="move",name="web",namespace="lab",'
        'node="here",status="succeeded"} 200.0'
    ]
    assert f"kubevirt_vmi_migration_failed{{{ENDED}}} 1.0" in _lines(_view("Failed"))


def test_what_somebody_must_look_at() -> None:
    lines = _lines(_view("Running", ("PostCopyInterrupted", "post-copy-failed")))
    wanted = 'namespace="lab",node="here",reason="post-copy-failed",type="PostCopyInterrupted",vmi="web"'
    assert f'launcher_migration_condition{{{wanted},vmim="move"}} 1.0' in lines


def test_two_earlier_attempts_with_one_reason_are_one_sample() -> None:
    lines = _lines(_view("Running", ("Retried", "link"), ("Retried", "link"), ("Retried", "interrupted")))
    found = [line for line in lines if line.startswith("launcher_migration_condition")]
    assert len(found) == 2


def test_phases_are_counted_and_nothing_is_counted_as_none() -> None:
    lines = _lines(_view("Pending"), _view("PreparingTarget"), _view("TargetReady"))
    assert 'kubevirt_vmi_migrations_in_pending_phase{node="here"} 1.0' in lines
    assert 'kubevirt_vmi_migrations_in_scheduling_phase{node="here"} 2.0' in lines
    assert _lines() == [
        f'kubevirt_vmi_migrations_in_{word}_phase{{node="here"}} 0.0'
        for word in ("pending", "scheduling", "running")
    ]
