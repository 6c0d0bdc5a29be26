# SPDX-License-Identifier: Apache-2.0
"""Volumes copied under a guest that stays, against a model of libvirt that answers late, or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from agent_nodes import NOW, node, site
from lxml import etree
from msgspec.structs import replace

from launcher.agent import in_place_run
from launcher.agent.added_volume import with_volume
from launcher.agent.draft import draft
from launcher.agent.in_place import InPlace
from launcher.agent.in_place_run import InPlaceEntry
from launcher.agent.instances import Instances
from launcher.agent.machine import Machine, Services
from launcher.agent.migrations import recorded
from launcher.agent.moved_volumes import same_place
from launcher.agent.port import AddedVolume, ClaimBinding, Companions, MigrationView
from launcher.agent.recordings import Recordings
from launcher.agent.records import DomainJob, InstanceRecord, PluggedVolume
from launcher.agent.resources import Resources
from launcher.agent.store import Store
from launcher.agent.supervisor import Supervisor
from launcher.agent.update import updated
from launcher.agent.volume_moves import moved
from launcher.agent.watch import Hub
from launcher.domain.build import build
from launcher.errors import Conflict, HypervisorError, InvalidSpec, TimedOut
from launcher.host.clock import SystemClock
from launcher.hypervisor.port import DomainRecord, DomainState, Hypervisor
from launcher.migration.attempt import Cause, Outgoing, Phase
from launcher.migration.disk_copy import DiskCopy
from launcher.migration.options import Options, Workload
from launcher.migration.peer import MovedDisk
from launcher.migration.recording import Acted, Recording, Resumed, read_recording
from launcher.spec.load import load_vmi
from launcher.spec.model import (
    ObjectMeta,
    PersistentVolumeClaimVolumeSource,
    VirtualMachineInstanceMigration,
    VirtualMachineInstanceMigrationSpec,
    Volume,
)
from launcher.units import MIB

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
  volumes:
  - {name: root, persistentVolumeClaim: {claimName: c-root}}
  - {name: data, persistentVolumeClaim: {claimName: c-data}}
"""
KEY = "lab/move"


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits."""
    monkeypatch.setattr(in_place_run, "POLL_S", 0.001)
    monkeypatch.setattr(in_place_run, "AGAIN_S", 0.001)


@dataclass
class Disks:
    """What libvirt has: the disks of one guest, by target, and calls as they came.

    A call ``unanswered`` is carried out only when the next one of its sort comes.
    """

    xml: str
    connected: bool = True
    sources: dict[str, str] = field(default_factory=dict)
    copies: dict[str, str] = field(default_factory=dict)
    looks: dict[str, int] = field(default_factory=dict)
    calls: list[tuple[object, ...]] = field(default_factory=list)
    unanswered: set[str] = field(default_factory=set)
    late: list[tuple[str, str, str]] = field(default_factory=list)
    whole_after: int = 2
    hangs: int = 0
    """So many calls more are refused, because one that came before has not returned."""

    async def domain(self, uuid: str) -> DomainRecord:
        return DomainRecord(uuid=uuid, name="n", state=DomainState.RUNNING, reason="booted", persistent=True)

    async def disk_size(self, uuid: str, target: str) -> int:
        return MIB

    async def domain_xml(self, uuid: str, *, inactive: bool = False) -> str:
        root = etree.fromstring(self.xml)
        for disk in root.iterfind("devices/disk"):
            target = disk.find("target").get("dev")  # type: ignore[union-attr]
            source = disk.find("source")
            assert target is not None
            assert source is not None
            if target in self.sources:
                source.set("file", self.sources[target])
            if target in self.copies:
                whole = self.looks.get(target, 0) >= self.whole_after
                mirror = etree.SubElement(disk, "mirror", type="file", job="copy")
                if whole:
                    mirror.set("ready", "yes")
                etree.SubElement(mirror, "source", file=self.copies[target])
        return etree.tostring(root, encoding="unicode")

    async def copy_disk(
        self, uuid: str, target: str, xml: str, *, bandwidth_bps: int = 0, in_step: bool = False
    ) -> None:
        self._catch_up()
        self.calls.append(("copy", target, bandwidth_bps, in_step))
        place = etree.fromstring(xml).find("source").get("file") or ""  # type: ignore[union-attr]
        if target in self.copies:
            raise Conflict("there is an active block job")
        self._do("copy", target, place)

    async def disk_copy_progress(self, uuid: str, target: str) -> tuple[int, int] | None:
        if target not in self.copies:
            return None
        self.looks[target] = self.looks.get(target, 0) + 1
        return min(self.looks[target], self.whole_after) * MIB // self.whole_after, MIB

    async def end_disk_copy(self, uuid: str, target: str, *, pivot: bool) -> None:
        self._catch_up()
        self.calls.append(("pivot" if pivot else "drop", target))
        if target not in self.copies:
            raise HypervisorError("the disk does not have an active block job")
        self._do("pivot" if pivot else "drop", target, "")

    def _do(self, what: str, target: str, place: str) -> None:
        if what in self.unanswered:
            self.late.append((what, target, place))
            raise TimedOut(f"{what}: no answer")
        self._carry_out(what, target, place)

    def _catch_up(self) -> None:
        if self.late and self.hangs:
            self.hangs -= 1
            raise Conflict("1 earlier call(s) have not returned")
        late, self.late = self.late, []
        for what, target, place in late:
            self._carry_out(what, target, place)

    def _carry_out(self, what: str, target: str, place: str) -> None:
        if what == "copy":
            self.copies[target] = place
        elif what == "pivot":
            self.sources[target] = self.copies.pop(target, self.sources.get(target, ""))
        else:
            self.copies.pop(target, None)


class Made:
    """Nothing is made or let go of."""

    async def extend(self, record: InstanceRecord, steps: tuple[object, ...]) -> tuple[object, ...]:
        return steps

    async def drop(self, steps: tuple[object, ...]) -> None:
        return


@dataclass
class Agent:
    """A part of an agent: one instance, and the moves of its volumes."""

    disks: Disks
    store: Store
    machine: Machine
    moves: InPlace
    recordings: Recordings
    hub: Hub[MigrationView]
    supervisor: Supervisor

    @property
    def entry(self) -> InPlaceEntry:
        found = self.moves.find(KEY)
        assert found is not None
        return found

    async def begin(self, options: Options | None = None) -> None:
        manifest = VirtualMachineInstanceMigration(
            metadata=ObjectMeta(name="move", namespace="lab", uid="attempt"),
            spec=VirtualMachineInstanceMigrationSpec(vmi_name="web"),
        )
        outgoing = Outgoing(
            attempt="attempt",
            namespace="lab",
            name="move",
            uuid="u",
            source_node="a",
            target_node="a",
            options=options or Options(),
            workload=Workload(memory_bytes=0, disk_bytes=MIB),
        )
        await self.moves.begin(manifest, self.machine, outgoing)

    async def until(self, holds: Callable[[], object]) -> None:
        """Wait for a condition."""
        async with asyncio.timeout(20):
            while not holds():
                await asyncio.sleep(0.001)

    async def ended(self) -> InPlaceEntry:
        await self.until(lambda: self.entry.attempt.phase.final)
        return self.entry

    async def recording(self) -> Recording:
        return read_recording(await self.moves.recording(KEY))


@asynccontextmanager
async def agent(folder: Path, record: InstanceRecord, disks: Disks | None = None) -> AsyncIterator[Agent]:
    """One with the state in ``folder``; another one may go on with it."""
    disks = disks or Disks(xml=build(record.plan))
    store, supervisor, hub = await Store.open(folder / "db"), Supervisor(), Hub[MigrationView]()
    stored = await store.instances()
    services = Services(
        node="a",
        hypervisor=cast(Hypervisor, disks),
        store=store,
        resources=cast(Resources, Made()),
        hub=Hub(),
        clock=SystemClock(),
    )
    machine = Machine(services, stored[0] if stored else record)
    await machine.update(lambda present: present, wake=False)

    async def where(*_: object) -> object:
        return site(node())

    instances = SimpleNamespace(machines=lambda: (machine,), site=where)
    recordings = Recordings(folder / "recordings")
    moves = InPlace(services, cast(Instances, instances), supervisor, hub, recordings)
    recordings.keep(lambda: recorded(moves.entries()))
    await moves.load()
    try:
        yield Agent(disks, store, machine, moves, recordings, hub, supervisor)
    finally:
        await supervisor.stop()
        await store.close()


@pytest.fixture
def claims(tmp_path: Path) -> dict[str, ClaimBinding]:
    """Directories by claim, where there is nothing yet but in the old ones."""
    found = {}
    for claim in ("c-root", "c-data", "c-plug", "new", "new2"):
        folder = tmp_path / claim
        folder.mkdir()
        if claim.startswith("c-"):
            (folder / "disk.img").write_bytes(bytes(MIB))
        found[claim] = ClaimBinding(claim=claim, path=str(folder), capacity=MIB)
    return found


@pytest.fixture
def record(claims: dict[str, ClaimBinding]) -> InstanceRecord:
    made = draft(
        load_vmi(TEXT),
        Companions(claims=(claims["c-root"], claims["c-data"])),
        uid="uid-web",
        site=site(node()),
        now=NOW,
        boot_id="boot-1",
    )
    return replace(made, phase="Running", prepared=True)


def to(record: InstanceRecord, **claims: ClaimBinding) -> InstanceRecord:
    """The record when its volumes are to go to other claims."""
    volumes = tuple(
        replace(
            volume,
            persistent_volume_claim=replace(
                volume.persistent_volume_claim, claim_name=claims[volume.name].claim
            ),
        )
        if volume.name in claims and volume.persistent_volume_claim is not None
        else volume
        for volume in record.manifest.spec.volumes
    )
    asked = replace(record.manifest, spec=replace(record.manifest.spec, volumes=volumes))
    beside = Companions(claims=tuple(claims.values()))
    return updated(record, asked, site=site(node()), beside=beside, strategy="Migration")


def source(record: InstanceRecord, name: str) -> str:
    found = next(disk.source for disk in record.plan.devices.disks if disk.name == name)
    assert found is not None
    return found.path


async def test_both_are_copied_then_changed_over_and_all_is_recorded(
    record: InstanceRecord, claims: dict[str, ClaimBinding], tmp_path: Path
) -> None:
    options = Options(bandwidth_bps=5 * MIB, allow_auto_converge=True)
    async with agent(tmp_path, to(record, root=claims["new"], data=claims["new2"])) as one:
        await one.begin(options)
        entry = await one.ended()
        assert entry.attempt.phase is Phase.SUCCEEDED, entry.attempt.reason
        assert one.disks.calls == [
            ("copy", "vda", 5 * MIB, True),
            ("copy", "vdb", 5 * MIB, True),
            ("pivot", "vda"),
            ("pivot", "vdb"),
        ], "as fast as allowed, and the guest's writes wait for the copy"
        assert source(one.machine.record, "root") == f"{tmp_path}/new/disk.img"
        assert (one.machine.record.outgoing, one.machine.record.moving) == ("", ())
        taped = await one.recording()
        assert (taped.header.rules, taped.header.workload.disk_bytes) == ("", MIB)
        assert [(step.step, step.volume) for step in taped.steps] == [
            ("copy", "root"),
            ("copy", "data"),
            ("pivot", "root"),
            ("pivot", "data"),
        ]
        assert all(step.reason and not step.error for step in taped.steps)
        assert {sample.disk_total for sample in taped.samples} == {2 * MIB}
        assert min(s.disk_remaining or 0 for s in taped.samples) < 2 * MIB
        assert taped.end is not None
        assert (taped.end.phase, taped.end.report) == ("Succeeded", entry.attempt.report)
        await one.moves.delete(KEY)
        assert list((tmp_path / "recordings").iterdir()) == []


async def test_without_consent_the_writes_of_the_guest_do_not_wait(
    record: InstanceRecord, claims: dict[str, ClaimBinding], tmp_path: Path
) -> None:
    async with agent(tmp_path, to(record, root=claims["new"])) as one:
        await one.begin()
        await one.ended()
        assert one.disks.calls[0] == ("copy", "vda", 0, False)


async def test_a_plugged_disk_moves_once_the_guest_has_it(
    record: InstanceRecord, claims: dict[str, ClaimBinding], tmp_path: Path
) -> None:
    claim = PersistentVolumeClaimVolumeSource(claim_name="c-plug")
    asked = with_volume(record, AddedVolume(volume=Volume(name="plug", persistent_volume_claim=claim)))
    added = updated(record, asked, site=site(node()), beside=Companions(claims=(claims["c-plug"],)))
    with pytest.raises(InvalidSpec, match="being plugged or unplugged"):
        to(added, plug=claims["new"])
    plugged = (PluggedVolume(name="plug", state="plugged"),)
    async with agent(tmp_path, to(replace(added, plugged=plugged), plug=claims["new"])) as one:
        await one.begin()
        entry = await one.ended()
        assert entry.attempt.phase is Phase.SUCCEEDED, entry.attempt.reason
        assert one.disks.calls == [("copy", "sda", 0, False), ("pivot", "sda")]
        after = one.machine.record
        assert source(after, "plug") == f"{tmp_path}/new/disk.img"
        assert after.plugged == plugged, "it can be unplugged as before"


async def test_another_agent_goes_on_in_the_same_recording(
    record: InstanceRecord, claims: dict[str, ClaimBinding], tmp_path: Path
) -> None:
    asked = to(record, root=claims["new"])
    disks = Disks(xml=build(asked.plan), whole_after=10**9)
    async with agent(tmp_path, asked, disks) as one:
        await one.begin()
        await one.until(lambda: one.disks.looks.get("vda", 0) > 3)
    disks.whole_after = 5
    async with agent(tmp_path, asked, disks) as other:
        entry = await other.ended()
        assert entry.attempt.phase is Phase.SUCCEEDED
        assert [call[0] for call in disks.calls] == ["copy", "pivot"], "none is begun twice"
        taped = await other.recording()
        assert [e.state for e in taped.entries if isinstance(e, Resumed)] == [""]
        assert [step.step for step in taped.steps] == ["copy", "pivot"]
        assert taped.end is not None


async def test_why_it_was_given_up_is_recorded(
    record: InstanceRecord, claims: dict[str, ClaimBinding], tmp_path: Path
) -> None:
    asked = to(record, root=claims["new"])
    async with agent(tmp_path, asked, Disks(xml=build(asked.plan), whole_after=10**9)) as one:
        await one.begin()
        await one.until(lambda: one.disks.looks.get("vda", 0) > 3)
        await one.moves.cancel(KEY)
        entry = await one.ended()
        assert entry.attempt.cause is Cause.CANCELLED
        assert one.disks.copies == {}
        assert source(one.machine.record, "root") == source(record, "root")
        taped = await one.recording()
        (given_up,) = (e.outcome.action for e in taped.entries if isinstance(e, Acted))
        assert given_up.reason == "cancelled"
        assert [(step.step, step.reason) for step in taped.steps][-1] == ("drop", "cancelled")


@pytest.mark.parametrize("hangs", [0, 1, 9])
async def test_a_copy_that_begins_late_is_ended_before_its_claim_is_free(
    record: InstanceRecord, claims: dict[str, ClaimBinding], tmp_path: Path, hangs: int
) -> None:
    asked = to(record, root=claims["new"])
    disks = Disks(xml=build(asked.plan), whole_after=10**9, unanswered={"copy"}, hangs=hangs)
    async with agent(tmp_path, asked, disks) as one:
        await one.begin()
        await one.until(lambda: one.disks.calls)
        await one.moves.cancel(KEY)
        entry = await one.ended()
        assert entry.attempt.cause is Cause.CANCELLED
        assert (disks.copies, disks.late) == ({}, []), "nobody writes to the claim any more"
        assert disks.calls[-1] == ("drop", "vda")


async def test_one_that_may_begin_yet_is_awaited_also_when_it_was_given_up(
    record: InstanceRecord, claims: dict[str, ClaimBinding], tmp_path: Path
) -> None:
    asked = to(record, root=claims["new"])
    disks = Disks(xml=build(asked.plan), whole_after=10**9, unanswered={"copy"}, hangs=9)
    async with agent(tmp_path, asked, disks) as one:
        await one.begin()
        entry = await one.ended()
        assert entry.attempt.cause is Cause.HYPERVISOR
        assert "1 earlier call(s) have not returned" in entry.attempt.reason
        assert (disks.copies, disks.late, disks.hangs) == ({}, [], 0)


async def test_one_that_was_begun_late_goes_on(
    record: InstanceRecord, claims: dict[str, ClaimBinding], tmp_path: Path
) -> None:
    asked = to(record, root=claims["new"])
    disks = Disks(xml=build(asked.plan), unanswered={"copy"})
    async with agent(tmp_path, asked, disks) as one:
        await one.begin()
        entry = await one.ended()
        assert entry.attempt.phase is Phase.SUCCEEDED, entry.attempt.reason
        assert [call[0] for call in disks.calls] == ["copy", "copy", "pivot"]
        assert [bool(step.error) for step in (await one.recording()).steps] == [True, True, False]


async def test_a_change_over_that_is_answered_too_late_is_seen(
    record: InstanceRecord, claims: dict[str, ClaimBinding], tmp_path: Path
) -> None:
    asked = to(record, root=claims["new"])
    disks = Disks(xml=build(asked.plan), unanswered={"pivot"})
    async with agent(tmp_path, asked, disks) as one:
        await one.begin()
        entry = await one.ended()
        assert disks.sources == {"vda": f"{tmp_path}/new/disk.img"}
        assert entry.attempt.phase is Phase.SUCCEEDED, entry.attempt.reason
        assert source(one.machine.record, "root") == disks.sources["vda"]


async def test_two_changes_at_once_are_both_kept(
    record: InstanceRecord, claims: dict[str, ClaimBinding], tmp_path: Path
) -> None:
    asked = to(record, root=claims["new"])
    copies = (DiskCopy(volume="root", target="vda", source="/a", destination="/b", state="left"),)
    async with agent(tmp_path, asked) as one:
        one.disks.connected = False
        await one.begin()
        await asyncio.gather(
            one.moves.cancel(KEY),
            one.moves.change(KEY, lambda entry: replace(entry, copies=copies)),
            one.moves.delete(KEY),
        )
        assert (one.entry.attempt.cancel, one.entry.deleted, one.entry.copies) == (True, True, copies)
    async with agent(tmp_path, asked) as other:
        await other.until(lambda: other.moves.find(KEY) is None)
        assert await other.store.documents("in-place") == {}
        assert other.machine.record.outgoing == ""
        await other.until(lambda: not list((tmp_path / "recordings").iterdir()))


async def test_one_that_never_began_does_not_join_a_backup(
    record: InstanceRecord, claims: dict[str, ClaimBinding], tmp_path: Path
) -> None:
    async with agent(tmp_path, to(record, root=claims["new"])) as one:
        one.disks.connected = False
        await one.begin()
        # As if the agent had died before the instance was told, and a backup had the instance.
        job = DomainJob(kind="backup", name="nightly")
        await one.machine.update(lambda present: replace(present, outgoing="", job=job))
    async with agent(tmp_path, record, one.disks) as other:
        await other.until(lambda: other.moves.find(KEY) is None)
        assert (other.disks.calls, other.machine.record.outgoing) == ([], "")


def test_a_claim_may_not_be_where_any_disk_of_the_guest_is(
    record: InstanceRecord, claims: dict[str, ClaimBinding], tmp_path: Path
) -> None:
    (tmp_path / "new").rmdir()
    (tmp_path / "new").symlink_to(tmp_path / "c-data")
    after = moved(to(record, root=claims["new"]), {"root"}, site(node()))
    (found,) = same_place(record, after, [MovedDisk(volume="root", bytes=MIB)])
    assert found == f"volume 'root': {tmp_path}/new/disk.img is where volume 'data' is"
    (tmp_path / "new").unlink()
    (tmp_path / "new").symlink_to(tmp_path / "c-root")
    (found,) = same_place(record, after, [MovedDisk(volume="root", bytes=MIB)])
    assert found.endswith("is where the volume is already")
