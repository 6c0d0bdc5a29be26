# SPDX-License-Identifier: Apache-2.0
"""Recordings: written by the engine while it runs, read again, and shown to the rules once more."""

from __future__ import annotations

import asyncio
import itertools

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from migration_stage import Stage, migrate
from migration_world import World, run

from launcher.errors import HypervisorError, InvalidRequest
from launcher.migration.attempt import Cause, Phase
from launcher.migration.compose import POLICIES
from launcher.migration.curves import curves, fewer
from launcher.migration.options import QEMU_MAX_DOWNTIME_MS, Options
from launcher.migration.policy import Abort, Outcome, SetMaxDowntime, StartPostCopy
from launcher.migration.recording import (
    FULL_BYTES,
    MOST_BYTES,
    THIN,
    VERSION,
    Acted,
    Bound,
    Decided,
    Entry,
    Looked,
    Recording,
    Resumed,
    Thinned,
    encode,
    is_recording,
    read_recording,
)
from launcher.migration.rerun import classic_rules, recorded, rerun
from launcher.migration.sample import Sample

POST_COPY = Options(allow_post_copy=True, allow_workload_disruption=True, completion_timeout_per_gib_s=20)
SHORT = Options(completion_timeout_per_gib_s=20)


def taped(stage: Stage) -> Recording:
    run(stage.tape.flush())
    return read_recording(stage.tape.written)


def test_a_recording_repeats_its_decisions() -> None:
    stage = Stage(World(duration_s=35))
    migrate(stage)
    recording = taped(stage)
    decided = recorded(recording)
    assert [call.value for line in decided for call in line.calls] == [150, 257, 364, 471]
    assert rerun(recording) == decided
    assert recording.samples[0].t == 0
    assert len(recording.samples) > 80


@settings(max_examples=30, deadline=None)
@given(
    rules=st.sampled_from(sorted(POLICIES)),
    consent=st.sampled_from([Options(), POST_COPY, SHORT, Options(progress_timeout_s=10)]),
    duration_s=st.sampled_from([3.0, 30.0, None]),
    pass_s=st.sampled_from([0.3, 1.0, 5.0]),
    failing=st.sets(st.sampled_from(["set_max_downtime", "start_postcopy", "abort_job"])),
    killed_s=st.sampled_from([None, 2.0, 9.0]),
)
def test_whatever_happened_a_recording_repeats_its_decisions(
    rules: str,
    consent: Options,
    duration_s: float | None,
    pass_s: float,
    failing: set[str],
    killed_s: float | None,
) -> None:
    stage = Stage(World(duration_s=duration_s, pass_s=pass_s), consent)
    stage.outgoing = msgspec.structs.replace(stage.outgoing, policy=rules)
    stage.tape = type(stage.tape)(stage.outgoing)
    for call in failing:
        stage.world.errors[f"source.{call}"] = [HypervisorError("not now")] * 2

    async def main() -> None:
        task = asyncio.create_task(stage.agent().run())
        await asyncio.wait({task}, timeout=killed_s or 400)
        if not task.done() and killed_s is not None:
            task.cancel()
            await asyncio.wait({task})
            stage.tape.killed()
            task = asyncio.create_task(stage.agent(stage.notebook.last).run())
            await asyncio.wait({task}, timeout=400)
        task.cancel()
        await asyncio.wait({task})

    run(main())
    recording = taped(stage)
    assert rerun(recording) == recorded(recording)


def test_an_agent_that_was_killed_leaves_a_recording_that_goes_on() -> None:
    stage = Stage(World(duration_s=40))

    async def main() -> None:
        task = asyncio.create_task(stage.agent().run())
        await asyncio.sleep(12)
        task.cancel()
        await asyncio.wait({task})
        stage.tape.killed()
        record = await stage.agent(stage.notebook.last).run()
        assert record.phase is Phase.SUCCEEDED

    run(main())
    recording = taped(stage)
    resumed = [entry for entry in recording.entries if isinstance(entry, Resumed)]
    assert len(resumed) == 1
    assert resumed[0].state
    decided = recorded(recording)
    assert [call.value for line in decided for call in line.calls] == [150, 257, 364, 471]
    assert rerun(recording) == decided
    seen = [sample.t for sample in recording.samples]
    assert max(later - earlier for earlier, later in itertools.pairwise(seen)) < 7


def test_a_cancelled_migration_tells_who_stopped_it() -> None:
    stage = Stage(World(duration_s=None))

    async def main() -> None:
        engine = stage.agent()
        task = asyncio.create_task(engine.run())
        await asyncio.sleep(5)
        await engine.cancel()
        assert (await task).cause is Cause.CANCELLED

    run(main())
    recording = taped(stage)
    acted = [entry.outcome.action for entry in recording.entries if isinstance(entry, Acted)]
    assert acted == [Abort(reason="cancelled on request", cause=Cause.CANCELLED)]
    assert rerun(recording) == recorded(recording), "what was asked for is no decision of the rules"


def test_other_rules_see_the_same_samples() -> None:
    stage = Stage(World(duration_s=35))
    migrate(stage)
    recording = taped(stage)
    fixed = rerun(recording, rules="fixed")
    assert [call.value for line in fixed for call in line.calls] == [900]
    assert classic_rules(recording) == "classic-legacy"
    assert rerun(recording, rules="classic-legacy") == ()


def test_a_recording_that_was_cut_is_read_up_to_there() -> None:
    stage = Stage(World())
    migrate(stage)
    whole = taped(stage)
    cut = read_recording(stage.tape.written[:-7])
    assert cut.entries == whole.entries[:-1]
    assert cut.end is None
    with pytest.raises(InvalidRequest, match="line 2"):
        read_recording(stage.tape.written.replace(b'{"kind":"sample"', b'{"kind":"simple"', 1))


@pytest.mark.parametrize("text", [b"", b"{}", b'{"samples": []}', b'{"kind":"end"}\n', b"\xff\n"])
def test_what_is_no_recording_is_refused(text: bytes) -> None:
    assert not is_recording(text)
    with pytest.raises(InvalidRequest, match="line 1"):
        read_recording(text)


def test_a_recording_of_the_future_is_refused() -> None:
    stage = Stage(World())
    text = stage.tape.written.replace(b'"version":%d' % VERSION, b'"version":9')
    assert is_recording(text)
    with pytest.raises(InvalidRequest, match="version 9"):
        read_recording(text)


def test_long_recordings_are_thinned_and_keep_every_decision() -> None:
    bound = Bound()
    lines = [Stage(World()).tape.written]
    decisions = 0
    for number in range(120_000):
        sample = Sample(t=number * 0.4, iteration=number, remaining=10**9 + number, processed=10**12 + number)
        lines.append(bound.lines(Looked(sample=sample)))
        if number % 20_000 == 19_999:
            action = SetMaxDowntime(ms=number, reason="because")
            lines.append(bound.lines(Decided(t=sample.t, outcomes=(Outcome(action=action, t=sample.t),))))
            decisions += 1
    text = b"".join(lines)
    recording = read_recording(text)
    assert FULL_BYTES < len(text) < MOST_BYTES + 10_000
    assert recording.thinned
    assert sum(isinstance(entry, Thinned) for entry in recording.entries) == 1
    assert len(recorded(recording)) == decisions
    before: Entry | None = None
    for entry in recording.entries:
        if isinstance(entry, Decided):
            assert isinstance(before, Looked)
            assert before.sample.t == entry.t, "what it was decided from is kept"
        before = entry
    times = [sample.t for sample in recording.samples]
    assert max(b - a for a, b in itertools.pairwise(times) if b < times[-1]) <= 20_000 * 0.4
    assert len(times) > FULL_BYTES // 300
    # One that is continued goes on where it was.
    more = Bound(MOST_BYTES + 1)
    kept = [more.lines(Looked(sample=Sample(t=float(n)))) for n in range(THIN * 3)]
    assert not any(kept), "past the end only what is decided"


def test_the_curves_of_a_recording() -> None:
    stage = Stage(World(duration_s=None), POST_COPY)
    stage.world.post_copy_s = 4.0
    migrate(stage)
    drawn = curves(taped(stage))
    assert drawn.title == "default/move: default/vm from a to b"
    assert drawn.outcome == "under way when it was recorded"
    assert drawn.post_copy == pytest.approx(20.5, abs=1)
    assert [mark.text for mark in drawn.marks] == ["allow 150 ms", "allow 257 ms", "start post-copy"]
    assert all(mark.reason for mark in drawn.marks)
    assert drawn.downtime_limit[:2] == ((drawn.marks[0].t, 150.0), (drawn.marks[1].t, 150.0))
    assert drawn.downtime_limit[-1] == (drawn.seconds, 257.0)
    assert drawn.bandwidth[-1][1] == pytest.approx(40e6, rel=0.1)
    assert len(drawn.passes) >= 15
    assert all(0 <= t <= drawn.seconds for t, _ in drawn.remaining)


def test_a_stop_of_the_guest_is_no_downtime_limit() -> None:
    actions = [SetMaxDowntime(ms=ms, reason="because") for ms in (150, 257, QEMU_MAX_DOWNTIME_MS)]
    text = Stage(World()).tape.written + b"".join(
        encode(Decided(t=float(t), outcomes=(Outcome(action=action, t=float(t)),)))
        for t, action in enumerate(actions)
    )
    drawn = curves(read_recording(text + encode(Looked(sample=Sample(t=9.0)))))
    assert drawn.downtime_limit == ((0.0, 150.0), (1.0, 150.0), (1.0, 257.0), (2.0, 257.0))
    assert [mark.text for mark in drawn.marks] == ["allow 150 ms", "allow 257 ms", "stop the guest"]


def test_fewer_points_keep_the_extremes() -> None:
    points = tuple((float(t), float((t * 37) % 1000)) for t in range(10_000))
    small = fewer(points, 100, 9999.0)
    assert len(small) <= 202
    assert max(v for _, v in small) == max(v for _, v in points)
    assert min(v for _, v in small) == 0
    assert list(small) == sorted(small)
    assert fewer(points[:50], 100, 50.0) == points[:50]


def test_an_action_reads_back_as_it_was() -> None:
    outcome = Outcome(action=StartPostCopy(reason="because"), t=1.5, error="refused")
    header = Stage(World()).tape.written
    found = read_recording(header + encode(Decided(t=1.0, outcomes=(outcome,), label="postCopy")))
    assert found.outcomes == (outcome,)
