# SPDX-License-Identifier: Apache-2.0
"""Which disks are copied, what a copy is called, and when a domain is free for one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from launcher.agent.backup_rules import copy_name, images, snapshot_disks, snapshot_record
from launcher.agent.backup_runs import claimed_for
from launcher.agent.records import DomainJob, InstanceRecord
from launcher.errors import Conflict, InvalidRequest

MakeRecord = Callable[..., InstanceRecord]
CREATED = "2026-03-01T12:00:00Z"
DISKS = """
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {name: web, namespace: lab, uid: 6ba7b810-9dad-41d1-80b4-00c04fd430c8}
spec:
  domain:
    memory: {guest: 128Mi}
    devices:
      disks:
      - {name: root, disk: {bus: virtio}}
      - {name: scratch, disk: {bus: virtio}}
      - {name: seed, disk: {bus: virtio}}
      - {name: fixed, disk: {bus: virtio, readonly: true}}
      - {name: media, cdrom: {bus: sata}}
  volumes:
  - {name: root, containerDisk: {image: "oci:/x"}}
  - {name: scratch, emptyDisk: {capacity: 1Gi}}
  - {name: seed, cloudInitNoCloud: {userData: x}}
  - {name: fixed, hostDisk: {path: /f.img, type: Disk}}
  - {name: media, hostDisk: {path: /m.img, type: Disk}}
"""


def test_what_the_guest_writes_is_copied(make_record: MakeRecord) -> None:
    record = make_record(DISKS)
    disks = snapshot_disks(record, ())
    assert [disk.name for disk in disks] == ["root", "scratch"]
    assert [path.rsplit("/", 1)[1] for path in images(disks)] == ["root.qcow2", "root.base", "scratch.qcow2"]
    copy = snapshot_record(record, disks, name="s", created=CREATED, root="/snaps")
    assert copy.directory == f"/snaps/{record.uid}/s"
    assert [(v.volume, v.file) for v in copy.volumes] == [
        ("root", f"{copy.directory}/root.qcow2"),
        ("scratch", f"{copy.directory}/scratch.qcow2"),
    ]
    assert sorted(copy.job.others) == sorted(
        disk.target for disk in record.plan.devices.disks if disk.name not in ("root", "scratch")
    )


@pytest.mark.parametrize(
    ("volumes", "words"),
    [
        (("nobody",), "no disk is named nobody"),
        (("seed",), "volume seed is not written by the guest"),
        (("fixed",), "volume fixed is not written by the guest"),
        (("media",), "volume media is not written by the guest"),
    ],
)
def test_what_cannot_be_copied_is_named(
    make_record: MakeRecord, volumes: tuple[str, ...], words: str
) -> None:
    with pytest.raises(InvalidRequest, match=words):
        snapshot_disks(make_record(DISKS), volumes)


def test_what_others_may_write_is_refused_unless_it_is_left_out(make_record: MakeRecord) -> None:
    record = make_record(DISKS)
    devices = record.plan.devices
    shared = tuple(replace(d, shareable=True) if d.name == "scratch" else d for d in devices.disks)
    record = replace(record, plan=replace(record.plan, devices=replace(devices, disks=shared)))
    with pytest.raises(InvalidRequest, match="volume scratch is shareable"):
        snapshot_disks(record, ())
    assert [disk.name for disk in snapshot_disks(record, ("root",))] == ["root"]


def test_a_name_is_made_up_and_is_no_path() -> None:
    assert copy_name("", "web", CREATED) == "web-20260301t120000z"
    assert len(copy_name("", "w" * 63, CREATED)) <= 63
    assert copy_name("before.update-1", "web", CREATED) == "before.update-1"
    for bad in ("../x", "a/b", "A", ".x", "a..b", "x" * 64, "-x"):
        with pytest.raises(InvalidRequest):
            copy_name(bad, "web", CREATED)


def test_a_domain_does_one_thing_at_a_time(make_record: MakeRecord) -> None:
    job = DomainJob(kind="snapshot", name="s")
    busy = claimed_for(make_record(), job)
    assert busy.job == job
    with pytest.raises(Conflict, match="busy with its snapshot s"):
        claimed_for(busy, DomainJob(kind="backup", name="b"))
    with pytest.raises(Conflict, match="migrates"):
        claimed_for(make_record(outgoing="m"), job)
