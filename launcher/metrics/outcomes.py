# SPDX-License-Identifier: Apache-2.0
"""Counts how migrations away from this node end -> metric families that only grow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import prometheus_client as prometheus
from prometheus_client.core import Metric

from launcher.agent.port import EventType, MigrationView, WatchEvent

DURATIONS_S: Final = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600)
DOWNTIMES_S: Final = (0.01, 0.025, 0.05, 0.1, 0.15, 0.3, 0.5, 0.9, 1.5, 3, 10, 60)


class Outcomes:
    """Counts each migration that ends, once; those that had ended before are not this process's."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._counted: set[str] = set()
        self._known = False
        self._total = prometheus.Counter(
            "launcher_migrations",
            "Migrations away from this node that ended, by cause (empty: it succeeded)",
            ("node", "outcome", "cause"),
            registry=None,
        )
        self._duration = prometheus.Histogram(
            "launcher_migrations_duration_seconds",
            "How long migrations took",
            ("node", "outcome"),
            buckets=DURATIONS_S,
            registry=None,
        )
        self._downtime = prometheus.Histogram(
            "launcher_migrations_downtime_seconds",
            "How long guests stood still for the switch",
            ("node",),
            buckets=DOWNTIMES_S,
            registry=None,
        )

    def observe(self, event: WatchEvent[MigrationView]) -> None:
        """Take an event of a watch of all migrations; a watch may begin again."""
        if event.object is None:
            self._known = self._known or event.type is EventType.BOOKMARK
            return
        view = event.object
        uid = (view.object.metadata.uid if view.object.metadata is not None else None) or ""
        if event.type is EventType.DELETED:
            self._counted.discard(uid)
        elif view.report is not None and view.object.spec.receive is None and uid not in self._counted:
            self._counted.add(uid)
            if self._known:
                self._count(view)

    def families(self) -> Iterator[Metric]:
        """One scrape."""
        for metric in (self._total, self._duration, self._downtime):
            yield from metric.collect()

    def _count(self, view: MigrationView) -> None:
        report = view.report
        assert report is not None, "only ended ones are counted"
        outcome = "succeeded" if report.succeeded else "failed"
        self._total.labels(self._node, outcome, _cause(view)).inc()
        if report.total_ms is not None:
            self._duration.labels(self._node, outcome).observe(report.total_ms / 1000)
        if report.downtime_ms is not None:
            self._downtime.labels(self._node).observe(report.downtime_ms / 1000)


def _cause(view: MigrationView) -> str:
    status = view.object.status
    conditions = status.conditions if status is not None else ()
    return next((c.reason or "" for c in conditions if c.type == "Failed"), "")
