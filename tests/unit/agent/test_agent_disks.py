# SPDX-License-Identifier: Apache-2.0
"""Disks of guests that run: which changes are accepted, the steps there, and what is shown."""

from __future__ import annotations

from typing import Any

import pytest
from agent_nodes import accepted, live, node, site
from msgspec.structs import replace

from launcher.agent import disks
from launcher.agent import reconcile as do
from launcher.agent.added_volume import with_volume, without_volume
from launcher.agent.disks import (
    ChangeMedia,
    DropVolume,
    MakeVolume,
    NotePlugged,
    PlugDisk,
    UnplugDisk,
    disk_steps,
)
from launcher.agent.draft import draft
from launcher.agent.growth import DiskSize, GrowDisk, growth_steps
from launcher.agent.hotplug import DISK_TRIES, Attempts, Hardware, can_change, disk_of
from launcher.agent.io_errors import Trouble
from launcher.agent.migratability import migration_findings
from launcher.agent.port import AddedVolume, ClaimBinding, Companions
from launcher.agent.records import InstanceRecord, Moment
from launcher.agent.status import show
from launcher.agent.update import updated
from launcher.agent.update_volumes import arriving, plugged_before
from launcher.agent.volume_ledger import Opened, identified, opened_by, require_free
from launcher.domain.read import DiskView, DomainView
from launcher.errors import AlreadyExists, Conflict, HostUnsupported, InvalidRequest, InvalidSpec, NotFound
from launcher.hypervisor.port import DomainRecord, DomainState
from launcher.plan.steps import CreateImage, RequireFile
from launcher.spec.load import load_vmi
from launcher.spec.model import (
    Disk,
    DiskTarget,
    EmptyDiskSource,
    HostDisk,
    LunTarget,
    PersistentVolumeClaimVolumeSource,
    Quantity,
    Volume,
)
from launcher.units import GIB, MIB

RUNNING = DomainRecord(uuid="u", name="n", state=DomainState.RUNNING, reason="booted", persistent=True)
IO_ERROR = DomainRecord(uuid="u", name="n", state=DomainState.PAUSED, reason="ioerror", persistent=True)
NOW = Moment(boot_id="boot-1", seconds=1000.0)
TEXT = """
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {name: web, namespace: lab, uid: uid-web}
spec:
  domain:
    memory: {guest: 1Gi}
    devices:
      autoattachPodInterface: false
      autoattachGraphicsDevice: false
      disks:
      - {name: root, disk: {bus: virtio}}
      - {name: cd, cdrom: {bus: scsi}}
  volumes:
  - {name: root, emptyDisk: {capacity: 1Gi}}
"""
FILE = Volume(name="data", host_disk=HostDisk(path="/srv/data.img", type="Disk"))
CLAIM = Volume(name="data", persistent_volume_claim=PersistentVolumeClaimVolumeSource(claim_name="c"))
MEDIA = Volume(name="cd", host_disk=HostDisk(path="/srv/cd.iso", type="Disk"))


def started() -> InstanceRecord:
    return accepted(TEXT, site(node()))


def add(
    record: InstanceRecord, volume: Volume = FILE, disk: Disk | None = None, *claims: ClaimBinding
) -> InstanceRecord:
    manifest = with_volume(record, AddedVolume(volume=volume, disk=disk))
    return updated(record, manifest, site=site(node()), beside=Companions(claims=claims))


def remove(record: InstanceRecord, name: str) -> InstanceRecord:
    return updated(record, without_volume(record, name), site=site(node()))


def with_disk(view: DomainView, record: InstanceRecord, name: str, **changes: Any) -> DomainView:
    """The domain once it has the disk of that name as it is planned."""
    plan = next(disk for disk in record.plan.devices.disks if disk.name == name)
    seen = DiskView(
        alias=name,
        target=plan.target,
        bus=plan.bus,
        source=plan.source.path if plan.source is not None else "",
        type="file",
        format=plan.format,
        device=plan.device,
        readonly=plan.readonly,
        shareable=plan.shareable,
    )
    rest = tuple(disk for disk in view.disks if disk.alias != name)
    return replace(view, disks=(*rest, replace(seen, **changes)))


def without(view: DomainView, name: str) -> DomainView:
    return replace(view, disks=tuple(disk for disk in view.disks if disk.alias != name))


def made(record: InstanceRecord, name: str) -> InstanceRecord:
    step = next(s for s in disk_steps(record, live(started())) if s.name == name)
    assert isinstance(step, MakeVolume)
    return disks.with_made(record, replace(step.disk, cache="none"), step.steps)


def plugged(record: InstanceRecord, name: str) -> InstanceRecord:
    return disks.with_state(made(record, name), name, "plugged")


def steps(record: InstanceRecord, view: DomainView) -> list[disks.DiskStep]:
    return list(disk_steps(record, view))


def refused(record: InstanceRecord, volume: Volume, disk: Disk | None = None) -> dict[str, str]:
    with pytest.raises(InvalidSpec) as caught:
        add(record, volume, disk)
    return {violation.field: violation.message for violation in caught.value.violations}


def test_a_disk_comes_in_three_steps_each_of_which_may_be_the_last_of_an_agent() -> None:
    before = started()
    view = live(before)
    record = add(before)
    assert can_change(record)
    (make,) = steps(record, view)
    assert isinstance(make, MakeVolume)
    assert [type(step) for step in make.steps] == [RequireFile]
    assert record.plan.devices.disks[: len(before.plan.devices.disks)] == before.plan.devices.disks

    record = disks.with_made(record, replace(make.disk, cache="none"), make.steps)
    (plug,) = steps(record, view)
    assert isinstance(plug, PlugDisk)
    assert (plug.disk.cache, plug.disk.bus, plug.disk.target) == ("none", "scsi", "sdb")
    there = with_disk(view, record, "data")
    assert steps(record, there) == [NotePlugged("data")], "the agent died after plugging it"
    record = disks.with_state(record, "data", "plugged")
    assert steps(record, there) == []
    assert [type(step) for step in steps(record, view)] == [PlugDisk], "somebody else took it away"


def test_it_leaves_and_keeps_its_name_and_its_file_until_it_is_gone() -> None:
    record = plugged(add(started()), "data")
    there = with_disk(live(started()), record, "data")
    leaving = remove(record, "data")
    assert [type(step) for step in steps(leaving, there)] == [UnplugDisk]
    assert [use.path for use in opened_by(leaving)] == ["/srv/data.img"]
    assert all(disks.volume_of(step) != "data" for step in leaving.plan.steps)

    again = add(leaving, replace(FILE, name="more"))
    fresh = next(disk for disk in again.plan.devices.disks if disk.name == "more")
    assert fresh.target == "sdc", "sdb is still in the guest"

    (drop,) = steps(leaving, without(there, "data"))
    assert isinstance(drop, DropVolume)
    gone = disks.without_leaving(leaving, drop.leaving)
    assert opened_by(gone) == ()
    assert steps(gone, live(started())) == []
    assert gone.manifest.spec == started().manifest.spec


def test_a_volume_that_comes_back_waits_until_it_has_gone() -> None:
    record = plugged(add(started()), "data")
    there = with_disk(live(started()), record, "data")
    back = add(remove(record, "data"))
    assert [type(step) for step in steps(back, there)] == [UnplugDisk]
    (drop,) = steps(back, without(there, "data"))
    assert isinstance(drop, DropVolume)
    (make,) = steps(disks.without_leaving(back, drop.leaving), without(there, "data"))
    assert isinstance(make, MakeVolume)


def test_media_go_into_an_empty_drive_and_out_of_it() -> None:
    before = started()
    view = live(before)
    record = add(before, MEDIA)
    assert len(record.plan.devices.disks) == len(before.plan.devices.disks)
    record = made(record, "cd")
    (change,) = steps(record, view)
    assert isinstance(change, ChangeMedia)
    assert not change.empty
    there = with_disk(view, record, "cd")
    record = disks.with_state(record, "cd", "plugged")
    assert steps(record, there) == []

    other = Volume(name="cd", host_disk=HostDisk(path="/srv/other.iso", type="Disk"))
    spec = replace(record.manifest.spec, volumes=(record.manifest.spec.volumes[0], other))
    changed = updated(record, replace(record.manifest, spec=spec), site=site(node()))
    (eject,) = steps(changed, there)
    assert isinstance(eject, ChangeMedia)
    assert eject.empty
    (drop,) = steps(changed, view)
    assert isinstance(drop, DropVolume)
    assert drop.leaving.disk.source is not None
    assert drop.leaving.disk.source.path == "/srv/cd.iso"
    (make,) = steps(disks.without_leaving(changed, drop.leaving), view)
    assert isinstance(make, MakeVolume)
    assert make.disk.source is not None
    assert make.disk.source.path == "/srv/other.iso"

    empty = remove(record, "cd")
    assert [disk.source for disk in empty.plan.devices.disks if disk.name == "cd"] == [None]
    assert [type(step) for step in steps(empty, there)] == [ChangeMedia]


def test_a_virtio_disk_takes_a_free_port_or_says_that_there_is_none() -> None:
    record = made(add(started(), FILE, Disk(name="data", disk=DiskTarget(bus="virtio"))), "data")
    view = live(started())
    (plug,) = steps(record, view)
    assert isinstance(plug, PlugDisk)
    address = disks.placed(plug).address
    assert address is not None
    assert address.bus == view.free_ports[0]
    (stuck,) = steps(record, replace(view, free_ports=()))
    assert isinstance(stuck, PlugDisk)
    with pytest.raises(HostUnsupported, match="use bus scsi"):
        disks.placed(stuck)


@pytest.mark.parametrize(
    ("volume", "disk", "field", "words"),
    [
        (FILE, Disk(name="data", disk=DiskTarget(bus="sata")), ".disk.bus", "scsi or virtio"),
        (CLAIM, Disk(name="data", lun=LunTarget(bus="sata")), ".lun.bus", "must be on scsi"),
        (
            FILE,
            Disk(name="data", disk=DiskTarget(bus="virtio"), dedicated_io_thread=True),
            ".dedicatedIOThread",
            "no more I/O threads",
        ),
    ],
)
def test_what_cannot_be_plugged_is_refused_by_path(
    volume: Volume, disk: Disk, field: str, words: str
) -> None:
    found = refused(started(), volume, disk)
    assert words in found[f"spec.domain.devices.disks[2]{field}"]


def test_what_the_guest_booted_with_stays_unless_it_says_otherwise() -> None:
    record = started()
    with pytest.raises(InvalidSpec, match="only a disk that was plugged"):
        remove(record, "root")
    with pytest.raises(NotFound, match="root"):
        remove(record, "nothing")
    with pytest.raises(AlreadyExists):
        add(record, replace(FILE, name="root"))
    text = TEXT.replace(
        "emptyDisk: {capacity: 1Gi}", "persistentVolumeClaim: {claimName: c, hotpluggable: true}"
    )
    claim = ClaimBinding(claim="c", path="/srv/c", capacity=GIB)
    beside = Companions(claims=(claim,))
    mine = draft(load_vmi(text), beside, uid="uid-web", site=site(node()), now="t", boot_id="boot-1")
    mine = replace(mine, phase="Running", prepared=True)
    assert [entry.disk.name for entry in remove(mine, "root").leaving] == ["root"]
    with pytest.raises(AlreadyExists, match="volume 'root'"):
        add(mine, CLAIM, None, claim)


def test_a_claim_must_be_bound_and_stays_where_it_is() -> None:
    with pytest.raises(HostUnsupported, match="claim 'c'"):
        add(started(), CLAIM)
    bound = ClaimBinding(claim="c", path="/srv/c", capacity=2 * MIB)
    record = add(started(), CLAIM, None, bound)
    assert record.companions.claims == (bound,), "it goes along with a migration"
    (image,) = [step for step in record.plan.steps if isinstance(step, CreateImage) and step.keep]
    assert (image.path, image.size) == ("/srv/c/disk.img", 2 * MIB)
    moved = replace(bound, path="/elsewhere")
    with pytest.raises(InvalidRequest, match="only its capacity may change"):
        updated(record, record.manifest, site=site(node()), beside=Companions(claims=(moved,)))


def test_a_larger_capacity_lets_the_disk_grow_and_a_smaller_one_does_nothing() -> None:
    bound = ClaimBinding(claim="c", path="/srv/c", capacity=2 * MIB)
    record = plugged(add(started(), CLAIM, None, bound), "data")
    more = Companions(claims=(replace(bound, capacity=8 * MIB),))
    grown = updated(record, record.manifest, site=site(node()), beside=more)
    (image,) = [step for step in grown.plan.steps if isinstance(step, CreateImage) and step.keep]
    assert image.size == 8 * MIB
    assert grown.plugged == record.plugged
    seen = (DiskSize(name="data", guest=2 * MIB, possible=8 * MIB),)
    (step,) = growth_steps(grown, seen)
    assert step == GrowDisk(grown.plan.devices.disks[-1], 8 * MIB)
    assert list(growth_steps(grown, (replace_size(seen[0], possible=MIB),))) == []
    short = DiskSize(name="data", guest=400 * MIB, possible=401 * MIB, short=True)
    assert list(growth_steps(grown, (short,))) == [], "a file system that breathes is left alone"


def replace_size(size: DiskSize, *, possible: int) -> DiskSize:
    return DiskSize(name=size.name, guest=size.guest, possible=possible)


def test_the_same_file_by_another_name_is_the_same_file() -> None:
    ours = Opened(key="a/a", volume="v", path="/one", writes=True)
    theirs = Opened(key="b/b", volume="w", path="/two", writes=True)
    require_free((ours,), (theirs,))
    files = {"/one": "file 1:2", "/two": "file 1:2"}
    with pytest.raises(Conflict, match=r"/one is written, as /two, by volume 'w' of b/b"):
        require_free(identified((ours,), files), identified((theirs,), files))


def test_a_change_under_way_is_told_and_keeps_the_guest_here() -> None:
    record = add(started())
    view = live(started())
    kinds = [message for _, message in migration_findings(record)]
    assert any("being plugged or unplugged: data" in message for message in kinds)

    def shown(record: InstanceRecord, **changes: Any) -> tuple[Any, Any]:
        vmi = show(
            record,
            RUNNING,
            node="n",
            now="t",
            before=None,
            hardware=Hardware(**{"live": view, **changes}),
        )
        assert vmi.status is not None
        volume = next((v for v in vmi.status.volume_status if v.name == "data"), None)
        condition = next((c for c in vmi.status.conditions if c.type == "HotVolumeChange"), None)
        return volume, condition

    volume, condition = shown(record)
    assert (volume.phase, condition.status) == ("Pending", "True")
    tries = Attempts(failures=1, ago_s=0.0, error="volume 'data': gone", reason="VolumeNotFound", heals=True)
    volume, condition = shown(record, disks={disk_of("data"): tries})
    assert (volume.reason, volume.message) == ("VolumeNotFound", "volume 'data': gone")
    assert (condition.status, condition.reason) == ("True", "VolumeNotFound")
    assert shown(made(record, "data"))[0].phase == "MountedToPod"
    done = plugged(record, "data")
    there = with_disk(view, done, "data")
    assert shown(done, live=there)[0].phase == "Ready"
    assert shown(done, live=there)[1] is None
    assert migration_findings(done) != migration_findings(record)
    leaving = remove(done, "data")
    given_up = Attempts(failures=DISK_TRIES, ago_s=0.0, error="not yet", most=DISK_TRIES)
    volume, condition = shown(leaving, live=there, disks={disk_of("data"): given_up})
    assert (volume.phase, condition.status) == ("Detaching", "False")
    assert shown(leaving)[0].phase == "UnMountedFromPod"


def test_what_can_heal_is_tried_for_ever_and_one_volume_waits_for_no_other() -> None:
    forever = Attempts(failures=500, ago_s=59.0, heals=True)
    assert not forever.exhausted
    assert 0 < forever.wait_s <= 1.0
    record = add(add(started()), replace(FILE, name="more", host_disk=HostDisk(path="/m", type="Disk")))
    stuck = Attempts(failures=3, ago_s=0.0, heals=True)
    hardware = Hardware(live=live(started()), disks={disk_of("data"): stuck})
    decision = do.reconcile(record, RUNNING, now=NOW, efforts=do.Efforts(), hardware=hardware)
    assert [step.name for step in decision.actions if isinstance(step, MakeVolume)] == ["more"]


def test_a_guest_that_an_io_error_paused_goes_on_when_its_storage_is_back() -> None:
    record = started()

    def decide(*troubles: Trouble, paused: bool = False) -> do.Decision:
        hardware = Hardware(live=live(record), troubles=troubles)
        wanted = replace(record, user_paused=paused)
        return do.reconcile(wanted, IO_ERROR, now=NOW, efforts=do.Efforts(), hardware=hardware)

    full = Trouble(name="data", path="/d", kind="no-space", still="its file system has 0 B left")
    assert decide(full) == do.Decision(look_again_s=do.IO_PROBE_S)
    well = Trouble(name="data", path="/d", kind="no-space")
    assert decide(well).actions == (do.Resume(),)
    assert decide(well, paused=True).actions == (), "a pause that a user wants stays"
    vmi = show(record, IO_ERROR, node="n", now="t", before=None, hardware=Hardware(troubles=(full,)))
    assert vmi.status is not None
    (pause,) = [c for c in vmi.status.conditions if c.type == "Paused"]
    assert pause.reason == "PausedIOError"
    assert "volume 'data': /d: No space left on device; its file system has" in (pause.message or "")


def test_an_instance_that_arrives_knows_what_was_plugged_and_plans_all_of_it() -> None:
    record = plugged(add(started()), "data")
    there = with_disk(live(started()), record, "data")
    vmi = show(record, RUNNING, node="n", now="t", before=None, hardware=Hardware(live=there))
    assert [(v.name, v.state) for v in plugged_before(vmi)] == [("data", "plugged")]
    status = arriving(vmi).status
    assert status is not None
    assert [(v.name, v.target) for v in status.volume_status] == [("root", "vda"), ("data", "sdb")]
    assert all(v.hotplug_volume is None for v in status.volume_status)


def test_an_empty_disk_is_made_and_dropped_with_what_was_made_for_it() -> None:
    empty = Volume(name="data", empty_disk=EmptyDiskSource(capacity=Quantity("2Mi")))
    record = plugged(add(started(), empty), "data")
    (leaving,) = remove(record, "data").leaving
    (image,) = leaving.steps
    assert isinstance(image, CreateImage)
    assert not image.keep
