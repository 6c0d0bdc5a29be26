# SPDX-License-Identifier: Apache-2.0
"""Who writes what: the ledger of volumes, and errors of a start that name the volume."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from launcher.agent.records import InstanceRecord
from launcher.agent.start_errors import explained
from launcher.agent.volume_ledger import Opened, opened_by, require_free
from launcher.errors import Conflict, HypervisorError, StorageError
from launcher.plan.devices.model import Backing, DevicesPlan, DiskPlan, DiskSource
from launcher.plan.steps import AnyStep, CreateImage, RequireFile

MakeRecord = Callable[..., InstanceRecord]


def use(key: str = "lab/a", path: str = "/d", *, writes: bool = True, shareable: bool = False) -> Opened:
    return Opened(key=key, volume="v", path=path, writes=writes, shareable=shareable)


@pytest.mark.parametrize(
    ("wanted", "held", "allowed"),
    [
        (use(), [], True),
        (use(), [use("lab/b", "/other")], True),
        (use(), [use("lab/b")], False),
        (use(), [use("lab/b", writes=False)], False),
        (use(writes=False), [use("lab/b")], False),
        (use(writes=False), [use("lab/b", writes=False)], True),
        (use(shareable=True), [use("lab/b", shareable=True)], True),
        (use(shareable=True), [use("lab/b")], False),
    ],
)
def test_a_writer_is_alone_unless_all_share(wanted: Opened, held: list[Opened], allowed: bool) -> None:
    if allowed:
        require_free([wanted], held)
    else:
        with pytest.raises(Conflict, match=r"volume 'v': /d is (written|read) by volume 'v' of lab/b"):
            require_free([wanted], held)


def test_an_instance_does_not_open_a_file_twice_itself() -> None:
    with pytest.raises(Conflict, match="the same instance"):
        require_free([use(), use()], [])


def with_disk(make_record: MakeRecord, disk: DiskPlan, *steps: AnyStep, **changes: Any) -> InstanceRecord:
    record = make_record(**changes)
    plan = msgspec.structs.replace(record.plan, devices=DevicesPlan(disks=(disk,)), steps=steps)
    return msgspec.structs.replace(record, plan=plan)


def disk(path: str, *, base: str = "", readonly: bool = False) -> DiskPlan:
    return DiskPlan(
        name="v",
        device="disk",
        bus="virtio",
        target="vda",
        source=DiskSource(path=path),
        backing=Backing(source=DiskSource(path=base)) if base else None,
        readonly=readonly,
    )


def test_only_what_is_the_users_counts(make_record: MakeRecord) -> None:
    own = CreateImage(owner="u", volume="v", path="/own", format="qcow2", size=1)
    users = RequireFile(owner="u", volume="v", path="/data//base")
    record = with_disk(make_record, disk("/own", base="/data/base"), own, users)
    assert opened_by(record) == (Opened(key="lab/web", volume="v", path="/data/base", writes=False),)


def test_what_ended_or_moved_away_holds_nothing(make_record: MakeRecord) -> None:
    step = CreateImage(owner="u", volume="v", path="/d", format="raw", size=1, keep=True)
    assert opened_by(with_disk(make_record, disk("/d"), step))[0].writes
    assert not opened_by(with_disk(make_record, disk("/d", readonly=True), step))[0].writes
    assert opened_by(with_disk(make_record, disk("/d"), step, phase="Failed")) == ()
    assert opened_by(with_disk(make_record, disk("/d"), step, moved_to="b")) == ()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('Failed to get "write" lock\nIs another process using the image [/d/x.img]?', "another process"),
        ("Could not open '/d/x.img': Permission denied", "QEMU's user may not open it"),
        ("Cannot access storage file '/d/x.img' (as uid:64055): No such file or directory", "not there"),
        ("unexpected end of '/d/x.img'", "unexpected end"),
    ],
)
def test_an_error_of_a_start_names_its_volume(make_record: MakeRecord, text: str, says: str) -> None:
    plan = with_disk(make_record, disk("/d/x.img")).plan
    found = explained(HypervisorError(text), plan.devices)
    assert isinstance(found, StorageError)
    assert found.volume == "v"
    assert says in found.message


def test_a_lock_of_a_file_that_is_not_named_is_that_of_the_plugged_disk(make_record: MakeRecord) -> None:
    devices = with_disk(make_record, disk("/d/x.img")).plan.devices
    text = "internal error: unable to execute QEMU command 'blockdev-add': Failed to get \"write\" lock"
    found = explained(HypervisorError(text), devices, devices.disks[0])
    assert isinstance(found, StorageError)
    assert (found.volume, found.problem) == ("v", "VolumeLocked")
    other = HypervisorError("internal error: no more slots")
    assert explained(other, devices, devices.disks[0]) is other


def test_an_error_about_no_volume_stays(make_record: MakeRecord) -> None:
    error = HypervisorError("internal error: no such machine")
    assert explained(error, with_disk(make_record, disk("/d/x.img")).plan.devices) is error
