# SPDX-License-Identifier: Apache-2.0
"""A node remembers its newest hundred migrations that have ended, and forgets of older ones all there is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from agent_part import (
    NAMESPACE,
    WITHIN,
    AgentPart,
    Disk,
    StandInHypervisor,
    carried,
    entry,
    failed,
    instance,
    within,
)
from standin_agent import StandInAgent

from launcher.agent import in_place, reminder
from launcher.agent.migration_status import OutgoingEntry
from launcher.agent.outgoing_ends import KEPT
from launcher.agent.recordings import Recordings, header_of
from launcher.api.server import ApiServer
from launcher.errors import NotFound, Unavailable
from launcher.migration.attempt import Cause, Earlier, Phase
from launcher.migration.peer import TargetState
from launcher.migration.progress import MigrationReport

NOWHERE = "unix:/nowhere"
RETRIED = Earlier(
    cause=Cause.LINK,
    reason="nothing came",
    at="2026-01-01T00:00:00Z",
    report=MigrationReport(succeeded=False),
)
BEFORE_ALL = "2025-01-01T00:00:00Z"


class Deaf(StandInAgent):
    """A target that hears nothing while ``deaf``."""

    deaf = True

    async def finish_migration(
        self, attempt: str, *, succeeded: bool, reason: str, reclaim: bool = False, discard: bool = False
    ) -> TargetState:
        if self.deaf:
            raise Unavailable("it is restarted")
        return TargetState(attempt=attempt, known=False)


@pytest.fixture
def agent() -> Deaf:
    return Deaf()


@pytest.fixture
def target(server: ApiServer, run_dir: Path) -> str:
    return f"unix:{run_dir}/s"


@pytest.fixture
async def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Disk]:
    monkeypatch.setattr(reminder, "PAUSES_S", (0.01,) * 3000)
    made = Disk(folder=tmp_path)
    yield made
    await made.stop()


def ended(number: int, **changes: object) -> OutgoingEntry:
    """One that ended ``number`` minutes after midnight; its name tells nothing of its age."""
    at = f"2026-01-01T{number // 60:02}:{number % 60:02}:00Z"
    return failed(f"move-{number * 37 % 101:03}", NOWHERE, Cause.CANCELLED, at=at, **changes)


async def record(disk: Disk, *entries: OutgoingEntry) -> None:
    """Every attempt of theirs has a recording."""
    recordings = Recordings(disk.folder / "recordings")
    for one in entries:
        for earlier in range(len(one.attempt.tokens)):
            attempt = msgspec.structs.replace(one.attempt, earlier=one.attempt.earlier[:earlier])
            then = msgspec.structs.replace(one, attempt=attempt)
            await (await recordings.recorder(header_of(then, BEFORE_ALL))).flush()
            if attempt.phase.final:
                await recordings.end(then)


def recorded(disk: Disk) -> set[str]:
    return {path.name.partition(".")[0] for path in (disk.folder / "recordings").iterdir()}


async def until_recorded(disk: Disk, attempts: set[str]) -> None:
    """Wait until there are recordings of just these."""
    async with asyncio.timeout(20):
        while recorded(disk) != attempts:
            await asyncio.sleep(0.005)


def name(one: OutgoingEntry) -> str:
    return one.key.partition("/")[2]


def shown(part: AgentPart) -> set[str]:
    views = part.migrations.list(NAMESPACE)
    return {view.object.metadata.name or "" for view in views if view.object.metadata is not None}


async def test_the_oldest_is_dropped_with_all_that_is_of_it(disk: Disk) -> None:
    oldest = ended(0, earlier=(RETRIED,))
    kept = [ended(number) for number in range(1, KEPT)]
    last = entry("last", NOWHERE, phase=Phase.PENDING, cancel=True)
    await disk.write(instance("uid-last"), [*kept, last, oldest])
    await record(disk, oldest, *kept)
    assert {"uid-move-000", "uid-move-000-2"} <= recorded(disk)
    part = await disk.start()
    assert len(await part.stored()) == KEPT + 1, "the last one has not ended: it waits for libvirt"
    part = await disk.start(StandInHypervisor())
    await carried("last")
    left = {*map(name, kept), "last"}
    assert set(await part.stored()) == left
    assert shown(part) == left
    with pytest.raises(NotFound):
        part.migrations.get(NAMESPACE, name(oldest))
    with pytest.raises(NotFound):
        await part.migrations.recording(NAMESPACE, name(oldest))
    for one in kept:
        assert await part.migrations.recording(NAMESPACE, name(one))
    await until_recorded(disk, {f"uid-{one}" for one in left})


async def test_what_runs_or_is_not_settled_is_kept_however_old_it_is(
    disk: Disk, agent: Deaf, target: str
) -> None:
    web, other = instance("uid-doubt"), instance("uid-runs", name="other")
    open_ones = [
        failed("doubt", target, Cause.UNRESOLVED, at=BEFORE_ALL),
        entry("runs", target, phase=Phase.RUNNING, at=BEFORE_ALL, of=other),
        failed("untold", target, Cause.CANCELLED, at=BEFORE_ALL, untold=True),
    ]
    old = [ended(number) for number in range(KEPT + 1)]
    await disk.write([web, other], [*open_ones, *old])
    await record(disk, *open_ones, *old)
    part = await disk.start()
    await carried("doubt")
    left = {*map(name, open_ones), *map(name, old[1:])}
    assert set(await part.stored()) == left
    await until_recorded(disk, {f"uid-{one}" for one in left})


async def test_what_is_not_settled_is_forgotten_when_it_is(disk: Disk, agent: Deaf, target: str) -> None:
    ones = [
        failed("halves", target, Cause.POST_COPY_FAILED),
        failed("untold", target, Cause.CANCELLED, untold=True),
        failed("over", target, Cause.CANCELLED),
    ]
    await disk.write(instance("uid-halves"), ones)
    part = await disk.start()
    for one in ones:
        await part.migrations.delete(NAMESPACE, name(one))
    assert shown(part) == set(await part.stored()) == {"halves", "untold"}
    part = await disk.start()
    await part.migrations.cancel_of(part.machine)
    assert set(await part.stored()) == {"halves", "untold"}, "the target has not heard it"
    agent.deaf = False
    await part.until(lambda found: not found)
    assert shown(part) == set()


async def test_what_was_in_doubt_is_forgotten_with_its_instance(disk: Disk) -> None:
    await disk.write(instance("uid-doubt"), [failed("doubt", NOWHERE, Cause.CONFLICT)])
    part = await disk.start()
    await part.migrations.delete(NAMESPACE, "doubt")
    assert shown(part) == {"doubt"}
    await part.migrations.cancel_of(part.machine)
    assert shown(part) == set(await part.stored()) == set()


async def test_of_moves_of_volumes_the_oldest_is_dropped_as_well(disk: Disk) -> None:
    oldest, *kept = [ended(number) for number in range(in_place.KEPT)]
    last = entry("last", NOWHERE, phase=Phase.PENDING, cancel=True)
    away = failed("away", NOWHERE, Cause.CANCELLED, at=BEFORE_ALL)
    moves = [within(one) for one in (*kept, last, oldest)]
    await disk.write(instance("uid-last"), [*moves, away])
    part = await disk.start(StandInHypervisor())
    async with asyncio.timeout(20):
        while name(oldest) in shown(part):
            await asyncio.sleep(0.005)
    assert shown(part) == {*map(name, kept), "last", "away"}
    assert set(await part.store.documents(WITHIN)) == {f"uid-{one}" for one in (*map(name, kept), "last")}
