# SPDX-License-Identifier: Apache-2.0
"""Migrations away from the node -> metric families. Pure.

Names are KubeVirt's where it has one, with the labels that it gives each of them; our own begin with
``launcher_``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime
from operator import attrgetter
from typing import Final

from prometheus_client.core import GaugeMetricFamily, Metric

from launcher.agent.port import MigrationView
from launcher.spec.model import VirtualMachineInstanceMigrationState

PROGRESS: Final = {
    "kubevirt_vmi_migration_data_total_bytes": ("total", "Memory and copied disks"),
    "kubevirt_vmi_migration_data_processed_bytes": ("processed", "Bytes sent so far"),
    "kubevirt_vmi_migration_data_remaining_bytes": ("remaining", "Bytes that are known to be left"),
    "kubevirt_vmi_migration_dirty_memory_rate_bytes": (
        "dirty_rate_bps",
        "Bytes a second the guest writes to",
    ),
    "kubevirt_vmi_migration_memory_transfer_rate_bytes": ("bandwidth_bps", "Bytes a second that are sent"),
    "launcher_migration_passes": ("iteration", "Passes over the memory so far"),
    "launcher_migration_downtime_limit_seconds": ("max_downtime_ms", "Downtime that QEMU may cause"),
    "launcher_migration_predicted_downtime_seconds": (
        "predicted_downtime_ms",
        "Downtime that the newest pass promises",
    ),
    "launcher_migration_eta_seconds": ("eta_s", "Until what is left is sent, at the earliest"),
}
"""Of migrations under way: name -> field of ``MigrationProgress`` and what it is."""
PHASES: Final = {
    "pending": ("Pending",),
    "scheduling": ("PreparingTarget", "TargetReady", "WaitingForSync"),
    "running": ("Running",),
}
"""Phases as they are counted: the middle of ``kubevirt_vmi_migrations_in_…_phase``."""
_MILLISECONDS: Final = frozenset({"max_downtime_ms", "predicted_downtime_ms"})
_INSTANCE: Final = ("node", "namespace", "name")
_ENDED: Final = ("node", "namespace", "vmi", "vmim")


def migration_families(node: str, migrations: Iterable[MigrationView]) -> Iterator[Metric]:
    """One scrape. Migrations that ended stay as long as their objects do."""
    views = tuple(migrations)
    yield from _counted(node, views)
    yield from _under_way(node, views)
    yield from _ended(node, views)
    yield from _times(node, views)
    yield _conditions(node, views)


def _counted(node: str, views: tuple[MigrationView, ...]) -> Iterator[Metric]:
    found = Counter(view.object.status.phase for view in views if view.object.status is not None)
    for word, phases in PHASES.items():
        family = GaugeMetricFamily(
            f"kubevirt_vmi_migrations_in_{word}_phase", f"Migrations that are {word}", labels=("node",)
        )
        family.add_metric((node,), sum(found[phase] for phase in phases))
        yield family


def _under_way(node: str, views: tuple[MigrationView, ...]) -> Iterator[Metric]:
    for name, (field, text) in PROGRESS.items():
        family = GaugeMetricFamily(name, text, labels=_INSTANCE)
        value = attrgetter(field)
        for view in views:
            number = value(view.progress) if view.progress is not None else None
            if number is not None:
                scale = 1000 if field in _MILLISECONDS else 1
                family.add_metric(_named(node, view)[:3], number / scale)
        yield family


def _ended(node: str, views: tuple[MigrationView, ...]) -> Iterator[Metric]:
    succeeded = GaugeMetricFamily("kubevirt_vmi_migration_succeeded", "1: it succeeded", labels=_ENDED)
    failed = GaugeMetricFamily("kubevirt_vmi_migration_failed", "1: it failed", labels=_ENDED)
    downtime = GaugeMetricFamily(
        "launcher_migration_downtime_seconds",
        "For how long the guest stood still at the switch",
        labels=_ENDED,
    )
    for view in views:
        labels, report = _named(node, view), view.report
        phase = view.object.status.phase if view.object.status is not None else ""
        if phase in ("Succeeded", "Failed"):
            succeeded.add_metric(labels, phase == "Succeeded")
            failed.add_metric(labels, phase == "Failed")
        if report is not None and report.downtime_ms is not None:
            downtime.add_metric(labels, report.downtime_ms / 1000)
    yield from (succeeded, failed, downtime)


def _times(node: str, views: tuple[MigrationView, ...]) -> Iterator[Metric]:
    began = GaugeMetricFamily(
        "kubevirt_vmi_migration_start_time_seconds",
        "When it began to run (Unix time)",
        labels=(*_INSTANCE, "migration_name"),
    )
    ended = GaugeMetricFamily(
        "kubevirt_vmi_migration_end_time_seconds",
        "When it ended (Unix time)",
        labels=(*_INSTANCE, "migration_name", "status"),
    )
    for view in views:
        status = view.object.status
        state = status.migration_state if status is not None else None
        state = state or VirtualMachineInstanceMigrationState()
        labels = _named(node, view)
        if state.start_timestamp:
            began.add_metric(labels, _unix(state.start_timestamp))
        if state.end_timestamp and status is not None:
            ended.add_metric((*labels, (status.phase or "").lower()), _unix(state.end_timestamp))
    yield from (began, ended)


def _conditions(node: str, views: tuple[MigrationView, ...]) -> Metric:
    family = GaugeMetricFamily(
        "launcher_migration_condition",
        "1 for each condition that holds of a migration",
        labels=(*_ENDED, "type", "reason"),
    )
    for view in views:
        present = view.object.status.conditions if view.object.status is not None else ()
        # Each earlier attempt has a condition of its own; a sample there is once.
        for kind, reason in dict.fromkeys(
            (c.type or "", c.reason or "") for c in present if c.status == "True"
        ):
            family.add_metric((*_named(node, view), kind, reason), 1)
    return family


def _named(node: str, view: MigrationView) -> tuple[str, str, str, str]:
    """Node, namespace, instance, migration."""
    metadata = view.object.metadata
    namespace = (metadata.namespace if metadata is not None else None) or ""
    return node, namespace, view.object.spec.vmi_name or "", (metadata.name if metadata else None) or ""


def _unix(rfc3339: str) -> float:
    return datetime.fromisoformat(rfc3339).timestamp()
