# SPDX-License-Identifier: Apache-2.0
"""Backups: which disks, where to, from where on; and how the plan tracks what changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from lxml import etree
from msgspec.structs import replace

from launcher.agent import backup_rules as rules
from launcher.agent.backup_records import CheckpointRecord, CopyRecord
from launcher.agent.migratability import migration_findings
from launcher.agent.port import BackupRequest
from launcher.agent.records import InstanceRecord
from launcher.domain.build import build
from launcher.errors import Conflict, InvalidRequest, WrongPhase
from launcher.plan.paths import InstancePaths
from launcher.plan.steps import TrackChanges

MakeRecord = Callable[..., InstanceRecord]
CREATED = "2026-03-01T12:00:00Z"
PATHS = InstancePaths("/state/u", "/run/u", "/net/u")
MANIFEST = """
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {name: web, namespace: lab, uid: 6ba7b810-9dad-41d1-80b4-00c04fd430c8}
spec:
  domain:
    memory: {guest: 128Mi}
    devices:
      disks:
      - {name: mine, disk: {bus: virtio}, changedBlockTracking: true}
      - {name: own, disk: {bus: virtio}, changedBlockTracking: true}
      - {name: seed, disk: {bus: virtio}, changedBlockTracking: true}
      - {name: plain, disk: {bus: virtio}}
  volumes:
  - {name: mine, hostDisk: {path: /d.img, type: Disk, shared: true}}
  - {name: own, emptyDisk: {capacity: 1Gi}}
  - {name: seed, cloudInitNoCloud: {userData: x}}
  - {name: plain, emptyDisk: {capacity: 1Gi}}
"""


@pytest.fixture
def record(make_record: MakeRecord) -> InstanceRecord:
    return make_record(MANIFEST)


def backup(record: InstanceRecord, **fields: Any) -> CopyRecord:
    request = BackupRequest(**{"directory": "/srv/b/", **fields})
    disks = rules.tracked_disks(record, request.volumes)
    return rules.backup_record(record, disks, request, name="b", created=CREATED, paths=PATHS)


def test_a_raw_image_stays_raw_behind_what_tracks_it(record: InstanceRecord) -> None:
    disks = {disk.name: disk for disk in record.plan.devices.disks}
    assert {name: disk.tracked for name, disk in disks.items()} == {
        "mine": True,
        "own": True,
        "seed": False,
        "plain": False,
    }
    (step,) = [step for step in record.plan.steps if isinstance(step, TrackChanges)]
    assert (step.path, step.data_path) == (disks["mine"].tracking, "/d.img")
    assert disks["own"].tracking is None
    finding = ("ChangedBlockTrackingNotLiveMigratable", "what tracks changes stays here: mine")
    assert finding in migration_findings(record)


@pytest.mark.parametrize("data_store", [False, True])
def test_libvirt_is_told_of_the_image_when_it_can_be(record: InstanceRecord, data_store: bool) -> None:
    devices = record.plan.devices
    disks = tuple(replace(d, data_store=data_store) if d.tracking else d for d in devices.disks)
    plan = replace(record.plan, devices=replace(devices, disks=disks))
    disk = etree.fromstring(build(plan)).find("devices/disk")
    assert disk is not None
    driver, source, store = disk.find("driver"), disk.find("source"), disk.find("source/dataStore")
    assert driver is not None
    assert source is not None
    assert (disk.get("type"), driver.get("type"), source.get("file")) == ("file", "qcow2", disks[0].tracking)
    assert (store is not None) == data_store
    if store is not None:
        assert store.get("type") == "file"
        assert [(e.tag, dict(e.attrib)) for e in store] == [
            ("format", {"type": "raw"}),
            ("source", {"file": "/d.img"}),
        ]


def test_a_pushed_backup_goes_to_folders_of_its_own(record: InstanceRecord) -> None:
    copy = backup(record, incremental="before")
    assert copy.directory == "/srv/b/web/b-20260301T120000Z"
    assert [v.file for v in copy.volumes] == [
        f"{copy.directory}/b-mine.qcow2",
        f"{copy.directory}/b-own.qcow2",
    ]
    assert (copy.checkpoint, copy.job.incremental, copy.own) == ("b-20260301T120000Z", "before", True)
    assert copy.job.server is None


def test_a_pulled_backup_is_served(record: InstanceRecord) -> None:
    copy = backup(record, mode="pull", directory="", incremental="before", volumes=("own",))
    assert copy.job.server is not None
    assert copy.job.server.socket == "/run/u/backup.sock"
    assert [(v.export, v.bitmap, v.file) for v in copy.volumes] == [("own", "before", "")]
    assert [d.file for d in copy.job.disks] == ["/state/u/disks/own.b.scratch"]
    served = backup(record, mode="pull", directory="", listen="[2001:db8::1]:10809").job.server
    assert served is not None
    assert (served.address, served.port, served.socket) == ("2001:db8::1", 10809, "")


@pytest.mark.parametrize(
    "fields",
    [
        {"mode": "pulled"},
        {"directory": ""},
        {"directory": "b"},
        {"directory": "/a/../b"},
        {"mode": "pull"},
        {"listen": "192.0.2.1:1"},
        {"mode": "pull", "directory": "", "listen": "host:1"},
        {"mode": "pull", "directory": "", "listen": "192.0.2.1:0"},
        {"deadline_s": -1},
        {"volumes": ("plain",)},
    ],
)
def test_what_cannot_be_is_refused(record: InstanceRecord, fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        backup(record, **fields)


def test_without_tracked_disks_there_is_no_backup(make_record: MakeRecord) -> None:
    with pytest.raises(WrongPhase, match="changedBlockTracking"):
        rules.tracked_disks(make_record(), ())
    assert rules.tracking_status(make_record()) is None


def test_a_checkpoint_must_be_whole_and_have_all_volumes(record: InstanceRecord) -> None:
    copy = backup(record, incremental="cp")
    names = ("mine", "own")
    good = CheckpointRecord(
        uid=record.uid, namespace="lab", vmi="web", name="cp", created=CREATED, volumes=names, xml="<x/>"
    )
    rules.require_covers(good, copy)
    with pytest.raises(InvalidRequest, match="does not have volume own"):
        rules.require_covers(replace(good, volumes=("mine",)), copy)
    with pytest.raises(Conflict, match="bitmap is gone"):
        rules.require_covers(replace(good, invalid="the bitmap is gone"), copy)


def test_the_status_tells_of_the_last_backup(record: InstanceRecord) -> None:
    copy = replace(backup(record), phase="Succeeded", ended=CREATED, indications=("Online", "GuestAgent"))
    shown = rules.backup_status(copy)
    assert (shown.completed, shown.failed, shown.quiesce_status) == (True, None, "Succeeded")
    assert shown.checkpoint_name == copy.checkpoint
    running = replace(record, phase="Running", backup=shown)
    status = rules.tracking_status(running)
    assert status is not None
    assert (status.state, status.backup_status) == ("Enabled", shown)
    failed = rules.backup_status(replace(copy, phase="Failed", message="full", indications=("Online",)))
    assert (failed.failed, failed.checkpoint_name, failed.quiesce_status) == (True, None, "Failed")
