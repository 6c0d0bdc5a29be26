# SPDX-License-Identifier: Apache-2.0
"""Who deletes an instance in two halves gives up both: the target is told until it has heard it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from agent_part import NAMESPACE, Disk, StandInHypervisor, carried, failed, instance, reminders
from standin_agent import StandInAgent

from launcher.agent import reminder
from launcher.api.server import ApiServer
from launcher.errors import LauncherError, Unavailable, WrongPhase
from launcher.migration.attempt import Cause
from launcher.migration.peer import TargetState

TOLD = ("uid-move", False, True)
"""The attempt; not to be reclaimed, but to be discarded."""


class Target(StandInAgent):
    """It gives ``answers``, one after the other (the domain that it has then), and has nothing in the end."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[tuple[str, bool, bool]] = []
        self.answers: list[str | LauncherError] = []

    async def finish_migration(
        self, attempt: str, *, succeeded: bool, reason: str, reclaim: bool = False, discard: bool = False
    ) -> TargetState:
        assert not succeeded
        assert reason == "for post-copy-failed"
        self.told.append((attempt, reclaim, discard))
        answer = self.answers.pop(0) if self.answers else ""
        if isinstance(answer, LauncherError):
            raise answer
        return TargetState(attempt=attempt, known=True, domain=answer)


@pytest.fixture
def agent() -> Target:
    return Target()


@pytest.fixture
async def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Disk]:
    monkeypatch.setattr(reminder, "PAUSES_S", (0.01,) * 3000)
    made = Disk(folder=tmp_path)
    yield made
    await made.stop()


async def test_the_target_is_told_until_it_has_heard_it(
    disk: Disk, agent: Target, server: ApiServer, run_dir: Path
) -> None:
    move = failed("move", f"unix:{run_dir}/s", Cause.POST_COPY_FAILED)
    await disk.write(instance("uid-move"), [move])
    part = await disk.start()
    await carried("move")
    assert part.machine.record.outgoing == "uid-move"
    agent.answers = [Unavailable("it starts"), "paused", Unavailable("libvirt does not answer"), "paused"]
    await part.migrations.cancel_of(part.machine)
    assert part.machine.record.outgoing == "", "the instance can go now"
    stored = await part.until(lambda found: not found["move"].attempt.untold)
    assert agent.told == [TOLD] * 5
    assert stored["move"].attempt.discarded
    assert stored["move"].attempt.cause is Cause.POST_COPY_FAILED
    await part.migrations.cancel_of(part.machine)
    assert reminders() == []
    with pytest.raises(WrongPhase, match="given up"):
        await part.migrations.recover(NAMESPACE, "move")


async def test_an_agent_that_restarts_tells_it_again(
    disk: Disk, agent: Target, server: ApiServer, run_dir: Path
) -> None:
    move = failed("move", f"unix:{run_dir}/s", Cause.POST_COPY_FAILED)
    await disk.write(instance("uid-move"), [move])
    part = await disk.start()
    await carried("move")
    agent.answers = ["paused"] * 3000
    await part.migrations.cancel_of(part.machine)
    kept = (await part.stored())["move"].attempt
    assert (kept.untold, kept.discarded) == (True, True), "it is on disk before the instance can go"
    await disk.stop()
    agent.told.clear()
    agent.answers = ["paused"]
    part = await disk.start()
    assert part.machine.record.outgoing == ""
    await part.until(lambda found: not found["move"].attempt.untold)
    assert agent.told == [TOLD] * 2
    await disk.start()
    assert reminders() == []
    assert agent.told == [TOLD] * 2


async def test_one_that_died_before_the_instance_could_go_tells_it_again(
    disk: Disk, agent: Target, server: ApiServer, run_dir: Path
) -> None:
    move = failed("move", f"unix:{run_dir}/s", Cause.POST_COPY_FAILED, untold=True, discarded=True)
    await disk.write(instance("uid-move"), [move])
    part = await disk.start(StandInHypervisor())
    await carried("move")
    await part.until(lambda found: not found["move"].attempt.untold)
    assert set(agent.told) == {TOLD}
    agent.told.clear()
    assert part.machine.record.outgoing == "uid-move", "it was not let go: deleting was not answered either"
    await part.migrations.cancel_of(part.machine)
    await part.until(lambda found: not found["move"].attempt.untold)
    assert part.machine.record.outgoing == ""
    assert agent.told == [TOLD]


@pytest.mark.parametrize("held", [True, False])
@pytest.mark.parametrize(
    "cause",
    [cause for cause in Cause if cause not in {Cause.NONE, Cause.POST_COPY_FAILED}],
    ids=lambda cause: cause.value,
)
async def test_after_no_other_end_anything_is_discarded(
    disk: Disk, agent: Target, server: ApiServer, run_dir: Path, cause: Cause, *, held: bool
) -> None:
    move = failed("move", f"unix:{run_dir}/s", cause)
    await disk.write(instance("uid-move" if held else ""), [move])
    part = await disk.start()
    await part.migrations.cancel_of(part.machine)
    assert part.machine.record.outgoing == ""
    assert reminders() == []
    kept = (await part.stored())["move"].attempt
    assert (kept.untold, kept.discarded) == (False, False)
    await disk.start()
    assert reminders() == []
    assert agent.told == []
