# SPDX-License-Identifier: Apache-2.0
"""Ends of migrations are counted, each of them once."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from launcher.agent.port import EventType, MigrationReport, MigrationView, WatchEvent
from launcher.metrics.outcomes import Outcomes
from launcher.spec.model import (
    ObjectMeta,
    VirtualMachineInstanceMigration,
    VirtualMachineInstanceMigrationCondition,
    VirtualMachineInstanceMigrationSpec,
    VirtualMachineInstanceMigrationStatus,
)

BOOKMARK: WatchEvent[MigrationView] = WatchEvent(type=EventType.BOOKMARK, version=1)


class _Once(Collector):
    def __init__(self, metrics: Iterator[Metric]) -> None:
        self._metrics = tuple(metrics)

    def collect(self) -> Iterator[Metric]:
        yield from self._metrics


def lines(metrics: Iterator[Metric], *names: str) -> list[str]:
    registry = CollectorRegistry()
    registry.register(_Once(metrics))
    text = generate_latest(registry).decode().splitlines()
    return [line for line in text if line.startswith(names or ("kubevirt", "launcher"))]


def view(
    name: str,
    phase: str,
    *,
    cause: str = "",
    report: MigrationReport | None = None,
) -> MigrationView:
    failed = VirtualMachineInstanceMigrationCondition(type="Failed", status="True", reason=cause)
    return MigrationView(
        object=VirtualMachineInstanceMigration(
            metadata=ObjectMeta(name=name, namespace="lab", uid=f"uid-{name}"),
            spec=VirtualMachineInstanceMigrationSpec(vmi_name="web"),
            status=VirtualMachineInstanceMigrationStatus(phase=phase, conditions=(failed,) if cause else ()),
        ),
        report=report,
    )


def event(shown: MigrationView, kind: EventType = EventType.MODIFIED) -> WatchEvent[MigrationView]:
    return WatchEvent(type=kind, version=1, object=shown)


DONE = MigrationReport(succeeded=True, total_ms=4000, downtime_ms=120)
FAILED = MigrationReport(succeeded=False, total_ms=90_000)


def test_an_end_is_counted_once_with_its_cause() -> None:
    outcomes = Outcomes("n")
    old = event(view("old", "Succeeded", report=DONE), EventType.ADDED)
    outcomes.observe(old)
    outcomes.observe(BOOKMARK)
    ended = view("one", "Succeeded", report=DONE)
    broken = view("two", "Failed", cause="link", report=FAILED)
    for shown in (view("one", "Running"), ended, ended, broken):
        outcomes.observe(event(shown))
    outcomes.observe(old)  # The watch began again: nothing is new in what it begins with.
    outcomes.observe(event(broken, EventType.ADDED))
    outcomes.observe(BOOKMARK)
    assert lines(outcomes.families(), "launcher_migrations_total") == [
        'launcher_migrations_total{cause="",node="n",outcome="succeeded"} 1.0',
        'launcher_migrations_total{cause="link",node="n",outcome="failed"} 1.0',
    ]
    assert lines(outcomes.families(), "launcher_migrations_downtime_seconds_sum") == [
        'launcher_migrations_downtime_seconds_sum{node="n"} 0.12'
    ]
    assert lines(outcomes.families(), "launcher_migrations_duration_seconds_sum") == [
        'launcher_migrations_duration_seconds_sum{node="n",outcome="succeeded"} 4.0',
        'launcher_migrations_duration_seconds_sum{node="n",outcome="failed"} 90.0',
    ]
