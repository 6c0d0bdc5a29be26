# SPDX-License-Identifier: Apache-2.0
"""Where memory is dumped, what gives way for it, and how the status tells."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from launcher.agent.memory_dump_rules import dump_statuses, dumping, ended, new_dump, older_dumps
from launcher.agent.port import ClaimBinding
from launcher.agent.records import InstanceRecord
from launcher.errors import Conflict, InvalidRequest
from launcher.plan.allocations import ClaimPlace

MakeRecord = Callable[..., InstanceRecord]
NOW = "2026-03-01T12:00:05Z"
MANIFEST = """
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {name: web, namespace: lab, uid: 6ba7b810-9dad-41d1-80b4-00c04fd430c8}
spec:
  domain: {memory: {guest: 128Mi}, devices: {}}
  volumes: [{name: dump, memoryDump: {claimName: dumps}}]
"""


@pytest.fixture
def record(make_record: MakeRecord) -> InstanceRecord:
    made = make_record(MANIFEST)
    places = {"dumps": ClaimPlace(path="/srv/dumps/"), "disk": ClaimPlace(path="/dev/x", block=True)}
    return replace(made, allocations=replace(made.allocations, claims=places))


def test_the_manifests_volume_is_where_it_goes(record: InstanceRecord) -> None:
    dump = new_dump(record, "", None, now=NOW)
    assert (dump.volume, dump.claim, dump.directory) == ("dump", "dumps", "/srv/dumps")
    assert dump.file == "web-dump-20260301-120005.memory.dump"
    assert new_dump(record, "dumps", None, now=NOW) == dump


def test_another_claim_comes_with_the_call(record: InstanceRecord) -> None:
    dump = new_dump(record, "more", ClaimBinding(claim="more", path="/srv/more"), now=NOW)
    assert (dump.volume, dump.directory) == ("more", "/srv/more")


@pytest.mark.parametrize(
    ("claim", "path", "words"),
    [
        ("disk", None, "claim disk is a disk"),
        ("gone", None, "claim gone must be bound"),
        ("x", "relative", "claim x must be bound to an absolute path"),
        ("x", "/a/../b", "claim x must be bound to an absolute path"),
        ("x", "/a/disk.img", "claim x is a disk"),
    ],
)
def test_a_dump_needs_a_directory(record: InstanceRecord, claim: str, path: str | None, words: str) -> None:
    binding = ClaimBinding(claim=claim, path=path) if path is not None else None
    with pytest.raises(InvalidRequest, match=words):
        new_dump(record, claim, binding, now=NOW)


def test_nothing_is_dumped_into_what_is_only_read(make_record: MakeRecord) -> None:
    fixed = make_record(MANIFEST.replace("claimName: dumps", "claimName: dumps, readOnly: true"))
    with pytest.raises(InvalidRequest, match="volume dump is read-only"):
        new_dump(fixed, "", None, now=NOW)


def test_without_a_volume_a_claim_must_be_named(make_record: MakeRecord) -> None:
    with pytest.raises(InvalidRequest, match="required"):
        new_dump(make_record(), "", None, now=NOW)


def test_the_status_tells_what_becomes_of_it(record: InstanceRecord) -> None:
    (before,) = dump_statuses(record)
    assert (before.name, before.phase) == ("dump", "Ready")
    dump = new_dump(record, "", None, now=NOW)
    busy = dumping(record, dump)
    (during,) = dump_statuses(busy)
    assert during.phase == "MemoryDumpInProgress"
    assert during.memory_dump_volume is not None
    assert during.memory_dump_volume.target_file_name == dump.file
    with pytest.raises(Conflict, match="busy with its memory dump"):
        dumping(busy, dump)
    done = ended(busy, dump, why="", now="2026-03-01T12:00:09Z")
    (after,) = dump_statuses(done)
    assert done.job is None
    assert after.phase == "MemoryDumpCompleted"
    assert after.memory_dump_volume is not None
    assert after.memory_dump_volume.end_timestamp == "2026-03-01T12:00:09Z"
    (failed,) = dump_statuses(ended(busy, dump, why="disk full", now=NOW))
    assert (failed.phase, failed.message) == ("MemoryDumpFailed", "disk full")


def test_only_earlier_dumps_of_the_same_guest_give_way(record: InstanceRecord) -> None:
    dump = new_dump(record, "", None, now=NOW)
    names = (
        "web-dump-20260228-000000.memory.dump",
        dump.file,
        "web2-dump-20260228-000000.memory.dump",
        "web-dump-2-20260228-000000.memory.dump",
        ".web-dump-20260228-000000.memory.dump.partial",
        "disk.img",
    )
    assert older_dumps(names, dump, "web") == ("web-dump-20260228-000000.memory.dump",)
