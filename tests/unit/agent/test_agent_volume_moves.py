# SPDX-License-Identifier: Apache-2.0
"""Volumes of running instances that go to other claims: what may, what is shown, and the record after it."""

from __future__ import annotations

import pytest
from agent_nodes import NOW, node, site
from msgspec.structs import replace

from launcher.agent.draft import draft
from launcher.agent.migratability import disks_to_copy, migration_findings
from launcher.agent.port import ClaimBinding, Companions
from launcher.agent.records import DomainJob, InstanceRecord
from launcher.agent.status import show
from launcher.agent.update import updated
from launcher.agent.volume_ledger import opened_by
from launcher.agent.volume_moves import arranged, departing, moved, moves_condition, withdrawn
from launcher.errors import Conflict, InvalidSpec, WrongPhase
from launcher.plan.steps import CreateImage, RequireFile
from launcher.spec.load import load_vmi
from launcher.spec.model import VirtualMachineInstanceMigrationState, Volume
from launcher.units import GIB, MIB

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
      - {name: data, disk: {bus: virtio}}
      - {name: all, disk: {bus: virtio}, shareable: true}
      - {name: raw, lun: {bus: scsi}}
      - {name: fixed, disk: {bus: virtio}}
      - {name: log, disk: {bus: virtio}, changedBlockTracking: true}
      - {name: cd, cdrom: {bus: scsi}}
  volumes:
  - {name: root, persistentVolumeClaim: {claimName: c-root}}
  - {name: data, dataVolume: {name: c-data}}
  - {name: all, persistentVolumeClaim: {claimName: c-all}}
  - {name: raw, persistentVolumeClaim: {claimName: c-raw}}
  - {name: fixed, persistentVolumeClaim: {claimName: c-fixed, readOnly: true}}
  - {name: log, persistentVolumeClaim: {claimName: c-log}}
  - {name: cd, persistentVolumeClaim: {claimName: c-cd}}
"""
NAMES = [volume.name for volume in load_vmi(TEXT).spec.volumes]
CLAIMS = tuple(
    ClaimBinding(claim=f"c-{name}", path=f"/srv/{name}", block=name == "raw", capacity=GIB) for name in NAMES
)
OTHER = ClaimBinding(claim="new", path="/mnt/new", capacity=2 * GIB)
DEVICE = ClaimBinding(claim="dev", path="/dev/vg/dev", block=True)


@pytest.fixture
def record() -> InstanceRecord:
    made = draft(
        load_vmi(TEXT), Companions(claims=CLAIMS), uid="uid-web", site=site(node()), now=NOW, boot_id="boot-1"
    )
    return replace(made, phase="Running", prepared=True)


def to(
    record: InstanceRecord, *claims: ClaimBinding, strategy: str = "Migration", **names: str
) -> InstanceRecord:
    """The record after an update by which volumes have other claims."""
    asked = record.manifest
    volumes = tuple(
        _claimed(volume, names[volume.name]) if volume.name in names else volume
        for volume in asked.spec.volumes
    )
    asked = replace(asked, spec=replace(asked.spec, volumes=volumes))
    return updated(record, asked, site=site(node()), beside=Companions(claims=claims), strategy=strategy)


def _claimed(volume: Volume, claim: str) -> Volume:
    if volume.data_volume is not None:
        return replace(volume, data_volume=replace(volume.data_volume, name=claim))
    assert volume.persistent_volume_claim is not None
    source = replace(volume.persistent_volume_claim, claim_name=claim)
    return replace(volume, persistent_volume_claim=source)


def test_the_instance_keeps_its_claims_until_they_are_copied(record: InstanceRecord) -> None:
    before = {message for reason, message in migration_findings(record) if reason == "DisksNotLiveMigratable"}
    assert "root" in str(before)
    after = to(record, OTHER, root="new")
    assert after.manifest == record.manifest
    assert after.plan.devices.disks == record.plan.devices.disks
    assert disks_to_copy(after) == ("vda",)
    assert "root" not in str(migration_findings(after))
    vmi = show(after, None, node="a", now=NOW, before=None)
    assert vmi.status is not None
    assert vmi.status.migration_method == "BlockMigration"
    (info,) = vmi.status.migrated_volumes
    assert info.source_pvc_info is not None
    assert info.destination_pvc_info is not None
    assert (info.volume_name, info.source_pvc_info.claim_name) == ("root", "c-root")
    assert info.destination_pvc_info.claim_name == "new"
    (told,) = (c for c in vmi.status.conditions if c.type == "VolumesChange")
    assert (told.status, told.message) == ("True", "root from c-root to new: with the next migration")
    sent = departing(after)
    assert sent.spec.volumes[0] == _claimed(record.manifest.spec.volumes[0], "new")
    assert sent.spec.volumes[1:] == record.manifest.spec.volumes[1:]
    # Named again the old claim takes it back; an update that says nothing of it leaves it.
    assert to(after, strategy="").moving == after.moving
    assert to(after).moving == ()
    assert withdrawn(after).moving == ()
    assert conditions(to(after)) == []


def conditions(record: InstanceRecord) -> list[tuple[str, str | None, str | None]]:
    return [(c.status, c.reason, c.message) for c in moves_condition(record)]


def test_what_was_cancelled_is_shown_until_somebody_says_again_what_is_to_be(record: InstanceRecord) -> None:
    cancelled = withdrawn(to(record, OTHER, root="new"))
    told = [("False", "VolumesChangeCancellation", "root from c-root to new: cancelled")]
    assert conditions(cancelled) == told
    assert conditions(withdrawn(cancelled)) == told, "the end may be told twice"
    assert cancelled.manifest == record.manifest
    assert to(cancelled, strategy="") == cancelled
    assert conditions(to(cancelled)) == [], "its control plane named the old claim again"
    again = to(cancelled, OTHER, root="new")
    assert [status for status, _, _ in conditions(again)] == ["True"]
    assert conditions(moved(again, {"root"}, site(node()))) == []
    without = replace(cancelled.defaulted, spec=replace(cancelled.defaulted.spec, volumes=()))
    assert conditions(replace(cancelled, defaulted=without)) == [], "the volume left"


def test_the_record_after_it_has_the_new_claims_and_grows_with_them(record: InstanceRecord) -> None:
    after = to(record, OTHER, DEVICE, root="new", data="dev")
    there = moved(after, {"root", "data"}, site(node()))
    assert there.moving == ()
    assert there.manifest == departing(after)
    root, data = there.plan.devices.disks[:2]
    assert root.source is not None
    assert data.source is not None
    assert (root.source.path, root.source.block) == ("/mnt/new/disk.img", False)
    assert (data.source.path, data.source.block) == ("/dev/vg/dev", True)
    assert replace(root, source=None) == replace(record.plan.devices.disks[0], source=None)
    steps = {getattr(s, "volume", ""): s for s in there.plan.steps}
    step, block = steps["root"], steps["data"]
    assert isinstance(step, CreateImage)
    assert (step.path, step.size, step.grow) == ("/mnt/new/disk.img", 2 * GIB, True)
    assert isinstance(block, RequireFile)
    half = moved(after, {"root"}, site(node()))
    assert [move.name for move in half.moving] == ["data"]
    assert half.plan.devices.disks[1] == record.plan.devices.disks[1]
    assert moved(there, {"root"}, site(node())) == there, "the second time changes nothing"


def test_a_copy_is_made_as_large_as_the_disk(record: InstanceRecord) -> None:
    after = to(record, OTHER, root="new")
    there = moved(after, {"root"}, site(node()))
    old = [s for s in there.plan.steps if getattr(s, "volume", None) in {"root", "data"}]
    step, other = arranged(old, {"root": 5 * MIB + 512})
    assert other == old[1]
    assert isinstance(step, CreateImage)
    assert (step.size, step.grow, step.fit, step.keep) == (5 * MIB + 512, True, False, True)
    unknown = RequireFile(owner="o", volume="root", path="/mnt/new/disk.img", link=False)
    (made,) = arranged([unknown], {"root": MIB})
    assert isinstance(made, CreateImage)
    assert (made.size, made.keep) == (MIB, True)
    device = RequireFile(owner="o", volume="root", path="/dev/x", block=True)
    assert arranged([device], {"root": MIB}) == (device,)


@pytest.mark.parametrize(
    ("volume", "words"),
    [
        ("all", "shareable"),
        ("raw", "a lun cannot be copied"),
        ("fixed", "read-only disk"),
        ("log", "changed blocks are tracked"),
    ],
)
def test_what_cannot_be_copied_is_refused(record: InstanceRecord, volume: str, words: str) -> None:
    with pytest.raises(InvalidSpec, match=words) as refused:
        to(record, OTHER, **{volume: "new"})
    index = NAMES.index(volume)
    assert refused.value.violations[0].field == f"spec.volumes[{index}].persistentVolumeClaim.claimName"


def test_claims_must_be_free_known_and_not_smaller(record: InstanceRecord) -> None:
    with pytest.raises(InvalidSpec, match="nobody said where claim 'new' lies"):
        to(record, root="new")
    with pytest.raises(InvalidSpec, match="'c-data' is that of volume 'data'"):
        to(record, root="c-data")
    with pytest.raises(InvalidSpec, match="'new' is that of volume 'root'") as twice:
        to(record, OTHER, root="new", data="new")
    assert twice.value.violations[0].field == "spec.volumes[1].dataVolume.name"
    with pytest.raises(InvalidSpec, match="less than the"):
        to(record, replace(OTHER, capacity=MIB), root="new")
    with pytest.raises(InvalidSpec, match="needs updateVolumesStrategy Migration"):
        to(record, OTHER, root="new", strategy="Replacement")
    with pytest.raises(InvalidSpec, match="accepted are Replacement, Migration"):
        to(record, OTHER, root="new", strategy="Sometimes")


def test_not_while_something_else_is_under_way(record: InstanceRecord) -> None:
    with pytest.raises(Conflict, match="busy with its backup nightly"):
        to(replace(record, job=DomainJob(kind="backup", name="nightly")), OTHER, root="new")
    with pytest.raises(WrongPhase, match="while it migrates"):
        to(replace(record, outgoing="attempt"), OTHER, root="new")
    asked = to(record, OTHER, root="new")
    with pytest.raises(WrongPhase, match="while it migrates"):
        to(replace(asked, outgoing="attempt"))


def test_what_is_copied_to_is_in_use(record: InstanceRecord) -> None:
    asked = to(record, OTHER, root="new")
    assert "/mnt/new/disk.img" not in {use.path for use in opened_by(asked)}
    here = VirtualMachineInstanceMigrationState(source_node="a", target_node="a")
    under_way = replace(asked, outgoing="attempt", migration_state=here)
    (use,) = (use for use in opened_by(under_way) if use.path == "/mnt/new/disk.img")
    assert (use.volume, use.writes) == ("root", True)
    leaves = replace(under_way, migration_state=replace(here, target_node="b"))
    assert "/mnt/new/disk.img" not in {use.path for use in opened_by(leaves)}, "it is another node's"
