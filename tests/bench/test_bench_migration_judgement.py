# SPDX-License-Identifier: Apache-2.0
"""The migration report finds each fault of a guest, and each pause beyond what was consented to."""

from __future__ import annotations

import msgspec
import pytest
from migration_judgement import CAP_MIB, CONSENTS, LOADS, Consent, Load, Row, chosen, judge, table

from launcher.lab.ticks import Chunk
from launcher.migration.options import QEMU_MAX_DOWNTIME_MS, Options, Workload
from launcher.migration.policy import Outcome, SetMaxDowntime, StartPostCopy
from launcher.migration.progress import MigrationReport
from launcher.migration.recording import Decided, Entry, Header, Looked, Recording
from launcher.migration.sample import Sample

IDLE, _, NEAR, ABOVE, BURSTY = LOADS
DEFAULT, POST_COPY, DISRUPTION = CONSENTS[:3]
MOVED = MigrationReport(succeeded=True, total_ms=9000, downtime_ms=200, iterations=4)
STAYED = MigrationReport(
    succeeded=False, total_ms=150_000, reason="completion timeout of 150 s passed; sorry"
)


def _chunks(*ticks: tuple[float, str, str]) -> list[Chunk]:
    return [Chunk(at=at, node=node, data=f"{line}\n".encode()) for at, node, line in ticks]


SOUND = _chunks((1.0, "a", "tick 1"), (1.1, "a", "tick 2"), (1.5, "b", "tick 3"), (1.6, "b", "tick 4"))


def _recording(*entries: Entry) -> Recording:
    header = Header(
        version=1,
        migration="default/m",
        instance="default/m",
        attempt="1",
        source_node="a",
        target_node="b",
        rules="standard",
        options=Options(),
        workload=Workload(memory_bytes=1),
        at="",
    )
    return Recording(header=header, entries=entries)


def _stopped(remaining: int, *, error: str = "") -> Recording:
    stop = SetMaxDowntime(ms=QEMU_MAX_DOWNTIME_MS, reason="")
    return _recording(
        Looked(sample=Sample(t=1.0, remaining=7)),
        Looked(sample=Sample(t=2.0, remaining=remaining)),
        Decided(t=2.0, outcomes=(Outcome(action=stop, t=2.1, error=error),)),
        Looked(sample=Sample(t=3.0, remaining=1)),
    )


def _row(
    load: Load = IDLE,
    consent: Consent = DEFAULT,
    *,
    chunks: list[Chunk] = SOUND,
    report: MigrationReport = MOVED,
    read: Recording = _recording(),  # noqa: B008 - it is frozen
) -> Row:
    return judge(load, consent, chunks, report, read)


def test_a_move_without_fault_is_no_error() -> None:
    row = _row()
    assert (row.outcome, row.downtime_ms, row.allowed_ms, row.gap_ms) == ("moved", 200, 900, 400)
    assert row.wrong == ()
    assert "WRONG" not in "\n".join(table([row]))


@pytest.mark.parametrize(
    ("chunks", "wrong"),
    [
        (_chunks((1.0, "a", "tick 1"), (1.1, "a", "tick 3")), "ticks are missing: 2"),
        ([], "ticks are missing: all"),
        (
            [*SOUND, *_chunks((1.7, "b", "GUEST UP"), (1.8, "b", "GUEST UP"))],
            "the guest says: GUEST UP",
        ),
        ([*SOUND, *_chunks((1.7, "b", "Kernel panic - not syncing"))], "the guest says: Kernel panic"),
        ([*SOUND, *_chunks((1.7, "b", "BAD page 3 in round 2"))], "the guest says: BAD page 3"),
        ([*SOUND, *_chunks((1.7, "b", "tick 4"))], "ticks came twice: 4"),
        ([*SOUND, *_chunks((1.7, "a", "tick 5"))], "it went on where it had left: tick 5 on a"),
        ([*SOUND, *_chunks((3.8, "b", "tick 5"))], "nothing came for 2200 ms, 2000 ms can be explained"),
    ],
)
def test_what_a_console_tells_is_found(chunks: list[Chunk], wrong: str) -> None:
    assert any(found.startswith(wrong) for found in _row(chunks=chunks).wrong)
    assert any(line.startswith("WRONG: idle/default") for line in table([_row(chunks=chunks)]))


@pytest.mark.parametrize(("downtime", "fine"), [(900, True), (901, False), (None, False)])
def test_the_downtime_is_compared_with_max_downtime(downtime: int | None, fine: bool) -> None:
    row = _row(report=msgspec.structs.replace(MOVED, downtime_ms=downtime))
    assert (row.wrong == ()) is fine


def test_a_forced_stop_may_last_as_long_as_what_was_left() -> None:
    read = _stopped(2 * CAP_MIB << 20)
    row = _row(ABOVE, DISRUPTION, read=read, report=msgspec.structs.replace(MOVED, downtime_ms=2900))
    assert (row.allowed_ms, row.how, row.wrong) == (2900, "stopped, with 2000 ms left", ())
    longer = msgspec.structs.replace(MOVED, downtime_ms=2901)
    assert _row(ABOVE, DISRUPTION, read=read, report=longer).wrong != ()


def test_a_stop_that_was_refused_allows_nothing() -> None:
    assert _row(ABOVE, DISRUPTION, read=_stopped(2 * CAP_MIB << 20, error="no")).allowed_ms == 900


def test_a_guest_in_post_copy_may_wait_for_its_pages_but_not_at_the_switch() -> None:
    post_copy = msgspec.structs.replace(MOVED, post_copy=True)
    asked = Decided(t=2.0, outcomes=(Outcome(action=StartPostCopy(reason=""), t=2.1),))
    waits = [*SOUND, *_chunks((5.5, "b", "tick 5"))]
    row = _row(ABOVE, POST_COPY, chunks=waits, report=post_copy, read=_recording(asked))
    assert (row.allowed_ms, row.how, row.wrong) == (900, "post-copy", ())
    assert _row(ABOVE, DISRUPTION, chunks=waits).wrong != ()


@pytest.mark.parametrize(
    ("load", "consent", "fine"),
    [
        (ABOVE, DEFAULT, True),
        (NEAR, DEFAULT, True),
        (BURSTY, DEFAULT, False),
        (IDLE, DEFAULT, False),
        (ABOVE, DISRUPTION, False),
        (NEAR, POST_COPY, False),
    ],
)
def test_who_may_stay(load: Load, consent: Consent, fine: bool) -> None:
    row = _row(load, consent, report=STAYED, chunks=SOUND[:2])
    assert (row.outcome, row.how) == ("stayed", "completion timeout of 150 s passed")
    assert (row.wrong == ()) is fine


def test_rows_are_chosen_by_name() -> None:
    assert len(chosen("")) == 20
    assert chosen("bursty/disruption") == [(BURSTY, DISRUPTION)]
    assert chosen("bursty") == [(BURSTY, consent) for consent in CONSENTS]
    assert chosen("/default,idle/post-copy") == [(load, DEFAULT) for load in LOADS] + [(IDLE, POST_COPY)]


@pytest.mark.parametrize("words", ["busy", "idle/none", "/", "idle,"])
def test_a_word_that_names_no_row_is_refused(words: str) -> None:
    with pytest.raises(ValueError, match="no row is"):
        chosen(words)
