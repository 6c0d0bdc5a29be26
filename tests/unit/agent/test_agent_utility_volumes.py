# SPDX-License-Identifier: Apache-2.0
"""Utility volumes: how they come and go, what may be written to them, and what a migration waits for."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import cast

import pytest
from agent_nodes import accepted, manifest, node, site
from msgspec.structs import replace

from launcher.agent import backup_rules
from launcher.agent import memory_dump_rules as dumps
from launcher.agent import reconcile as do
from launcher.agent.backup_runs import claimed_for
from launcher.agent.hotplug import Hardware
from launcher.agent.machine import Machine, Services
from launcher.agent.port import BackupRequest, ClaimBinding, Companions
from launcher.agent.records import DomainJob, InstanceRecord, Moment
from launcher.agent.release import released
from launcher.agent.resources import Resources
from launcher.agent.status import show
from launcher.agent.store import Store
from launcher.agent.update import updated
from launcher.agent.utility_volumes import Folder, FolderState, folders
from launcher.agent.watch import Hub
from launcher.errors import Conflict, HostUnsupported, InvalidRequest, InvalidSpec, WrongPhase
from launcher.host.clock import SystemClock
from launcher.hypervisor.port import DomainRecord, DomainState, Hypervisor
from launcher.spec.load import load_vmi
from launcher.spec.model import VirtualMachineInstance, VolumeStatus

RUNNING = DomainRecord(uuid="u", name="n", state=DomainState.RUNNING, reason="booted", persistent=True)
NOW = "2026-03-01T12:00:05Z"
STORE = "{name: store, claimName: backups, type: Backup}"
CORES = "{name: cores, claimName: cores, type: MemoryDump}"
FIXED = "{name: fixed, claimName: fixed, readOnly: true}"
PLAIN = "{name: plain, claimName: plain}"
CLAIMS = tuple(
    ClaimBinding(claim=name, path=f"/srv/{name}") for name in ("backups", "cores", "fixed", "plain")
)


def with_volumes(*entries: str) -> VirtualMachineInstance:
    return load_vmi(f"{manifest()}  utilityVolumes: [{', '.join(entries)}]\n")


def change(
    record: InstanceRecord, *entries: str, claims: tuple[ClaimBinding, ...] = CLAIMS
) -> InstanceRecord:
    return updated(record, with_volumes(*entries), site=site(node()), beside=Companions(claims=claims))


@pytest.fixture
def record() -> InstanceRecord:
    return accepted(manifest(), site(node()))


def statuses(record: InstanceRecord, *seen: FolderState) -> dict[str, VolumeStatus]:
    hardware = Hardware(folders=seen)
    shown = show(record, RUNNING, node="n", now=NOW, before=None, hardware=hardware).status
    assert shown is not None
    return {status.name: status for status in shown.volume_status}


def test_they_come_and_go_and_the_guest_is_as_it_was(record: InstanceRecord) -> None:
    after = change(record, STORE, FIXED)
    assert after.plan == record.plan
    assert [volume.name for volume in after.manifest.spec.utility_volumes] == ["store", "fixed"]
    assert folders(after) == (
        Folder(name="store", path="/srv/backups", writes=True),
        Folder(name="fixed", path="/srv/fixed", writes=False),
    )
    fewer = change(after, FIXED, claims=())
    assert [folder.name for folder in folders(fewer)] == ["fixed"]
    again = (ClaimBinding(claim="backups", path="/mnt/elsewhere"),)
    assert folders(change(fewer, FIXED, STORE, claims=again))[1].path == "/mnt/elsewhere"


def test_what_is_shown_can_be_sent_back(record: InstanceRecord) -> None:
    after = change(record, STORE)
    shown = show(after, RUNNING, node="n", now=NOW, before=None)
    assert updated(after, shown, site=site(node())) is after


def test_the_status_tells_what_is_wrong_with_a_folder(record: InstanceRecord) -> None:
    after = change(record, STORE, PLAIN)
    assert {s.phase for s in statuses(after).values()} == {"Pending"}
    store, plain = folders(after)
    fault = FolderState(folder=store, reason="VolumeNotFound", message="/srv/backups: gone")
    found = statuses(after, fault, FolderState(folder=plain))
    assert (found["store"].phase, found["store"].reason) == ("Pending", "VolumeNotFound")
    assert found["store"].message == "/srv/backups: gone"
    assert (found["plain"].phase, found["plain"].target, found["plain"].reason) == ("Ready", "", None)
    info = found["plain"].persistent_volume_claim_info
    assert info is not None
    assert info.claim_name == "plain"


def test_a_folder_at_fault_is_looked_at_again(record: InstanceRecord) -> None:
    after, now = change(record, STORE), Moment(boot_id="boot-1", seconds=1.0)
    (store,) = folders(after)
    for message, again in (("", None), ("gone", do.FOLDER_PROBE_S)):
        seen = (FolderState(folder=store, message=message),)
        decision = do.reconcile(
            after, RUNNING, now=now, efforts=do.Efforts(), hardware=Hardware(folders=seen)
        )
        assert (decision.actions, decision.look_again_s) == ((), again)


def test_what_cannot_be_had_is_refused(record: InstanceRecord) -> None:
    with pytest.raises(HostUnsupported, match="'backups'"):
        change(record, STORE, claims=())
    disk = ClaimBinding(claim="backups", path="/dev/sdz", block=True)
    with pytest.raises(InvalidRequest, match="claim backups is a disk"):
        change(record, STORE, claims=(disk,))
    with pytest.raises(InvalidSpec, match=r"utilityVolumes\[0\]\.type"):
        change(record, "{name: u, claimName: plain, type: Scratch}")
    with pytest.raises(InvalidSpec, match=r"utilityVolumes\[1\]\.claimName"):
        change(record, PLAIN, "{name: other, claimName: plain}")
    after = change(record, STORE)
    with pytest.raises(InvalidSpec, match="remove it first"):
        change(after, "{name: store, claimName: plain}")
    moved = (ClaimBinding(claim="backups", path="/mnt/elsewhere"),)
    with pytest.raises(InvalidRequest, match="it is in use, at /srv/backups"):
        change(after, STORE, claims=moved)
    with pytest.raises(WrongPhase):
        change(replace(record, phase="Scheduled"), STORE)


def test_none_leaves_while_something_is_written_to_it(record: InstanceRecord) -> None:
    after = change(record, STORE, PLAIN)
    busy = claimed_for(after, DomainJob(kind="backup", name="b", volume="store"))
    with pytest.raises(Conflict, match="store of lab/web cannot leave: backup b is being written"):
        change(busy, PLAIN, claims=())
    assert folders(change(busy, STORE, claims=()))[0].name == "store"
    with pytest.raises(Conflict, match="has left"):
        claimed_for(record, DomainJob(kind="backup", name="b", volume="store"))


def test_during_a_migration_they_only_leave(record: InstanceRecord) -> None:
    waits = replace(change(record, STORE), outgoing="attempt")
    assert folders(change(waits, claims=())) == ()
    with pytest.raises(WrongPhase, match="while it migrates"):
        change(waits, STORE, PLAIN)


def test_a_backup_goes_to_the_one_that_it_names(record: InstanceRecord) -> None:
    after = change(record, STORE, CORES, FIXED)
    request = backup_rules.directed(after, BackupRequest(destination="store"))
    assert request.directory == "/srv/backups"
    for wrong, words in (
        (BackupRequest(destination="cores"), "of type MemoryDump; backups need Backup"),
        (BackupRequest(destination="fixed"), "is read-only"),
        (BackupRequest(destination="gone"), "there are: store, cores, fixed"),
        (BackupRequest(destination="store", directory="/x"), "a directory or a volume"),
        (BackupRequest(destination="store", mode="pull"), "only a pushed backup"),
    ):
        with pytest.raises(InvalidRequest, match=words):
            backup_rules.directed(after, wrong)


def test_a_dump_goes_to_the_one_that_is_for_dumps(record: InstanceRecord) -> None:
    after = change(record, STORE, CORES, PLAIN)
    dump = dumps.new_dump(after, "", None, now=NOW)
    assert (dump.volume, dump.claim, dump.directory) == ("cores", "cores", "/srv/cores")
    assert dumps.new_dump(after, "plain", None, now=NOW).volume == "plain"
    assert dumps.new_dump(after, "", None, now=NOW, volume="plain").directory == "/srv/plain"
    for claim, volume, words in (
        ("", "store", "of type Backup; memory dumps need MemoryDump"),
        ("backups", "", "of type Backup"),
        ("plain", "plain", "not both"),
    ):
        with pytest.raises(InvalidRequest, match=words):
            dumps.new_dump(after, claim, None, now=NOW, volume=volume)
    busy = dumps.dumping(after, dump)
    with pytest.raises(Conflict, match="cores of lab/web cannot leave"):
        change(busy, STORE, PLAIN, claims=())
    found = statuses(busy, *(FolderState(folder=folder) for folder in folders(busy)))
    assert (found["cores"].phase, found["store"].phase) == ("MemoryDumpInProgress", "Ready")


async def test_a_migration_waits_for_them(record: InstanceRecord, tmp_path: Path) -> None:
    store = await Store.open(tmp_path / "launcher.db")
    services = Services(
        node="n",
        hypervisor=cast(Hypervisor, None),
        store=store,
        resources=cast(Resources, None),
        hub=Hub(),
        clock=SystemClock(),
    )
    after = change(record, STORE)
    machine, at_once = Machine(services, after), asyncio.Event()
    told: list[str] = []

    async def tell(why: str) -> None:
        told.append(why)

    held = await released(machine, within_s=0.0, at_once=at_once, tell=tell)
    assert told == ["waits for utility volumes to be removed: store", ""]
    assert held == "utility volumes are still there after 0 s (utilityVolumesTimeout): store"
    waiting = asyncio.create_task(released(machine, within_s=60.0, at_once=at_once, tell=tell))
    await machine.update(lambda present: change(replace(present, outgoing="attempt"), claims=()))
    assert await waiting == ""
    cancelled = asyncio.create_task(
        released(Machine(services, after), within_s=60.0, at_once=at_once, tell=tell)
    )
    at_once.set()
    assert await cancelled == ""
    await store.close()
