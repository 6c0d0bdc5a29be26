# SPDX-License-Identifier: Apache-2.0
"""Recordings on disk: written while a migration runs, taken up by the next agent, compressed, forgotten."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import pytest

from launcher.agent import recordings
from launcher.agent.migration_status import OutgoingEntry
from launcher.agent.recordings import Recordings, header_of
from launcher.errors import NotFound
from launcher.host.files import write_atomic
from launcher.migration.attempt import AttemptRecord, Cause, Outgoing, Phase, Transition
from launcher.migration.options import Options, Workload
from launcher.migration.policy import Outcome, SetMaxDowntime
from launcher.migration.recording import Decided, Looked, read_recording
from launcher.migration.sample import Sample
from launcher.spec.model import (
    ObjectMeta,
    VirtualMachineInstanceMigration,
    VirtualMachineInstanceMigrationSpec,
)

NOW = "2026-01-01T00:00:00Z"
ACTION = Outcome(action=SetMaxDowntime(ms=150, reason="the first"), t=0.1)


def entry(attempt: str) -> OutgoingEntry:
    return OutgoingEntry(
        manifest=VirtualMachineInstanceMigration(
            metadata=ObjectMeta(name="move", namespace="lab"),
            spec=VirtualMachineInstanceMigrationSpec(vmi_name="web"),
        ),
        target="192.0.2.1:1",
        uid="u",
        attempt=AttemptRecord(
            outgoing=Outgoing(
                attempt=attempt,
                namespace="lab",
                name="move",
                uuid="d",
                source_node="a",
                target_node="b",
                options=Options(),
                workload=Workload(memory_bytes=1),
            ),
            phase=Phase.FAILED,
            cause=Cause.LINK,
            reason="no luck",
            transitions=(Transition(phase=Phase.FAILED, at=NOW),),
        ),
    )


async def written(folder: Path, attempt: str) -> Recordings:
    kept = Recordings(folder)
    recorder = await kept.recorder(header_of(entry(attempt), NOW))
    recorder.note(Looked(sample=Sample(t=0.0)))
    recorder.note(Decided(t=0.0, outcomes=(ACTION,)))
    await recorder.flush()
    return kept


async def test_what_is_written_is_read_while_it_runs_and_after(tmp_path: Path) -> None:
    kept = await written(tmp_path / "r", "one")
    recording = read_recording(await kept.read("one"))
    assert (recording.header.migration, recording.header.instance) == ("lab/move", "lab/web")
    assert (recording.outcomes, recording.end) == ((ACTION,), None)
    await kept.end(entry("one"))
    await kept.end(entry("one"))
    assert [path.name for path in (tmp_path / "r").iterdir()] == ["one.jsonl.gz"]
    assert (tmp_path / "r").stat().st_mode & 0o777 == 0o700
    ended = read_recording(await kept.read("one"))
    assert ended.outcomes == (ACTION,)
    assert ended.end is not None
    assert (ended.end.phase, ended.end.cause, ended.end.reason) == ("Failed", "link", "no luck")


async def test_the_next_agent_goes_on_where_the_killed_one_was_cut(tmp_path: Path) -> None:
    await written(tmp_path, "one")
    path = tmp_path / "one.jsonl"
    path.write_bytes(path.read_bytes() + b'{"kind":"sam')
    kept = Recordings(tmp_path)
    recorder = await kept.recorder(header_of(entry("one"), "later"))
    recorder.note(Looked(sample=Sample(t=7.0)))
    recording = read_recording(await kept.read("one"))
    assert recording.header.at == NOW
    assert [sample.t for sample in recording.samples] == [0.0, 7.0]
    await kept.end(entry("one"))
    # One that is tried again after its end is one recording, too.
    recorder = await Recordings(tmp_path).recorder(header_of(entry("one"), "later"))
    recorder.note(Looked(sample=Sample(t=9.0)))
    await recorder.flush()
    assert [path.name for path in tmp_path.iterdir()] == ["one.jsonl"]
    assert len(read_recording(path.read_bytes()).samples) == 3


async def test_one_that_was_not_ended_by_the_agent_that_made_it_is(tmp_path: Path) -> None:
    await written(tmp_path, "one")
    kept = Recordings(tmp_path)
    await kept.end(entry("one"))
    assert read_recording(await kept.read("one")).end is not None


async def test_only_the_recordings_of_known_attempts_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, attempt in enumerate(("one", "two", "three")):
        kept = await written(tmp_path, attempt)
        await kept.end(entry(attempt))
        os.utime(tmp_path / f"{attempt}.jsonl.gz", (number, number))
    kept = await written(tmp_path, "now")
    kept.keep(lambda: ("one", "two"))
    kept.keep(lambda: ("now",))
    await kept.prune()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["now.jsonl", "one.jsonl.gz", "two.jsonl.gz"]
    size = (tmp_path / "two.jsonl.gz").stat().st_size
    monkeypatch.setattr(recordings, "MOST_BYTES", size)
    await kept.prune()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["now.jsonl", "two.jsonl.gz"]
    await kept.drop("two")
    with pytest.raises(NotFound):
        await kept.read("two")


async def test_a_recording_that_begins_while_others_are_forgotten_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it is written to before it is whole has a name of its own, and looks like nobody's."""
    kept, begun, pruned = Recordings(tmp_path), threading.Event(), threading.Event()
    write = write_atomic

    def slow(path: Path, data: bytes) -> None:
        unfinished = path.with_name(f".{path.name}.000000000000")
        unfinished.touch()
        begun.set()
        pruned.wait(0.3)
        assert unfinished.exists()
        unfinished.unlink()
        write(path, data)

    monkeypatch.setattr(recordings, "write_atomic", slow)
    beginning = asyncio.create_task(kept.recorder(header_of(entry("new"), NOW)))
    assert await asyncio.to_thread(begun.wait, 10)
    forgetting = asyncio.create_task(kept.prune())
    forgetting.add_done_callback(lambda _: pruned.set())
    await beginning
    await forgetting
    assert read_recording(await kept.read("new")).header.attempt == "new"


async def test_an_attempt_whose_name_is_a_path_stays_in_the_folder(tmp_path: Path) -> None:
    kept = await written(tmp_path / "r", "../../outside")
    assert len(list((tmp_path / "r").iterdir())) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["r"]
    await kept.end(entry("../../outside"))
    kept.keep(lambda: ("../../outside",))
    await kept.prune()
    assert read_recording(await kept.read("../../outside")).end is not None


async def test_a_disk_that_cannot_be_written_costs_only_the_recording(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    kept = Recordings(tmp_path / "file" / "r")
    recorder = await kept.recorder(header_of(entry("one"), NOW))
    recorder.note(Looked(sample=Sample(t=0.0)))
    await recorder.flush()
    await kept.end(entry("one"))
    with pytest.raises((NotFound, OSError)):
        await kept.read("one")
