# SPDX-License-Identifier: Apache-2.0
"""Tables and documents as kubectl's users know them."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import yaml

from launcher.cli import table
from launcher.cli.commands.get import differing

NOW = datetime(2026, 5, 1, 12, 0, 0, tzinfo=UTC)
VMI = {
    "apiVersion": "kubevirt.io/v1",
    "kind": "VirtualMachineInstance",
    "metadata": {"name": "demo", "namespace": "a", "creationTimestamp": "2026-05-01T11:59:15Z"},
    "status": {
        "phase": "Running",
        "nodeName": "n1",
        "interfaces": [{"ipAddress": "10.0.2.2"}],
        "conditions": [{"type": "Ready", "status": "True"}, {"type": "LiveMigratable", "status": "False"}],
    },
}


def test_instance_columns() -> None:
    row = table.instance_row(VMI, NOW, wide=True)
    assert table.table((*table.INSTANCE_COLUMNS, *table.INSTANCE_WIDE), [row]).splitlines() == [
        "NAME   AGE   PHASE     IP         NODENAME   READY   LIVE-MIGRATABLE   PAUSED",
        "demo   45s   Running   10.0.2.2   n1         True    False",
    ]


def test_an_instance_that_knows_nothing_yet() -> None:
    assert table.instance_row({"metadata": {"name": "x"}}, NOW, wide=False) == (
        "x", table.UNKNOWN, "", "", "", "",
    )  # fmt: skip


def test_migration_columns() -> None:
    vmim = {
        "metadata": {"name": "m"},
        "spec": {"vmiName": "demo"},
        "status": {"phase": "Running", "migrationState": {"sourceNode": "a", "targetNode": "b"}},
    }
    assert table.migration_row(vmim, NOW, wide=False) == ("m", "Running", "demo")
    assert table.migration_row(vmim, NOW, wide=True)[3:] == (table.UNKNOWN, "a", "b")


@pytest.mark.parametrize(
    ("age", "shown"),
    [
        (timedelta(seconds=0), "0s"),
        (timedelta(seconds=119), "119s"),
        (timedelta(seconds=120), "2m"),
        (timedelta(seconds=150), "2m30s"),
        (timedelta(minutes=59), "59m"),
        (timedelta(hours=3, minutes=5), "3h5m"),
        (timedelta(hours=20), "20h"),
        (timedelta(days=2, hours=3), "2d3h"),
        (timedelta(days=400), "400d"),
        (timedelta(seconds=-5), "0s"),
    ],
)
def test_age(age: timedelta, shown: str) -> None:
    item = {"metadata": {"creationTimestamp": (NOW - age).isoformat()}}
    assert table.age(item, NOW) == shown


def test_documents() -> None:
    one = table.documents([VMI], "yaml", single=True)
    assert yaml.safe_load(one) == VMI
    assert list(yaml.safe_load(one)) == list(VMI)
    several = json.loads(table.documents([VMI, VMI], "json", single=False))
    assert (several["kind"], len(several["items"])) == ("List", 2)
    assert table.documents([VMI], "name", single=False) == "virtualmachineinstance.kubevirt.io/demo"


def test_a_watch_tells_an_object_again_only_when_it_changed() -> None:
    def move(name: str, phase: str) -> dict[str, Any]:
        return {"metadata": {"name": name}, "status": {"phase": phase}}

    events = [
        ("ADDED", move("a", "Running")),
        ("ADDED", move("b", "Running")),
        ("MODIFIED", move("a", "Running")),
        ("MODIFIED", move("b", "Failed")),
        ("MODIFIED", move("a", "Running")),
        ("DELETED", move("a", "Running")),
        ("ADDED", move("a", "Running")),
    ]
    assert list(differing(events)) == [events[n][1] for n in (0, 1, 3, 5, 6)]
