# SPDX-License-Identifier: Apache-2.0
"""Every cell of the table of owners, and how both sides are read."""

from __future__ import annotations

import pytest

from launcher.hypervisor.port import DomainRecord, DomainState
from launcher.migration.ownership import SourceSide, TargetSide, Verdict, judge, source_side, target_side
from launcher.migration.peer import TargetState

TABLE = """
          unreachable  none          incoming    active      post-copy        post-copy-failed ended
running   source-keeps source-keeps  drop-target conflict    conflict         conflict         source-keeps
paused    wait         source-keeps  drop-target target-owns post-copy-broken post-copy-broken guest-ended
switching wait         resume-source drop-target target-owns post-copy-broken post-copy-broken guest-ended
post-copy wait         half-lost     wait        target-owns post-copy-broken post-copy-broken half-lost
migrated  wait         lost          wait        target-owns wait             wait             target-owns
ended     wait         guest-ended   drop-target target-owns wait             half-lost        guest-ended
absent    wait         lost          wait        target-owns wait             wait             target-owns
"""
HEADER, *ROWS = TABLE.strip().splitlines()
CELLS = [
    (row.split()[0], column, cell)
    for row in ROWS
    for column, cell in zip(HEADER.split(), row.split()[1:], strict=True)
]


@pytest.mark.parametrize(("source", "target", "verdict"), CELLS)
def test_each_cell(source: str, target: str, verdict: str) -> None:
    assert judge(SourceSide(source), TargetSide(target)) is Verdict(verdict)


def test_the_table_is_complete() -> None:
    assert len(CELLS) == len(SourceSide) * len(TargetSide)


def test_the_source_is_resumed_only_when_the_target_has_nothing() -> None:
    resumed = {(s, t) for s in SourceSide for t in TargetSide if judge(s, t) is Verdict.RESUME_SOURCE}
    assert resumed == {(SourceSide.SWITCHING, TargetSide.NONE)}


def test_the_source_is_forgotten_only_when_the_target_has_the_guest() -> None:
    for source in SourceSide:
        for target in TargetSide:
            if judge(source, target) is Verdict.TARGET_OWNS:
                assert source is not SourceSide.RUNNING
                assert target in (TargetSide.ACTIVE, TargetSide.ENDED)


def test_half_a_guest_is_ended_only_when_the_other_half_is_proven_to_be_gone() -> None:
    ended = {(s, t) for s in SourceSide for t in TargetSide if judge(s, t) is Verdict.HALF_LOST}
    assert ended == {
        (SourceSide.POST_COPY, TargetSide.NONE),
        (SourceSide.POST_COPY, TargetSide.ENDED),
        (SourceSide.ENDED, TargetSide.POST_COPY_FAILED),
    }


def test_a_target_that_does_not_answer_proves_nothing() -> None:
    """Only a source that runs the guest needs no answer."""
    for source in SourceSide:
        verdict = judge(source, TargetSide.UNREACHABLE)
        assert verdict is (Verdict.SOURCE_KEEPS if source is SourceSide.RUNNING else Verdict.WAIT)


@pytest.mark.parametrize(
    ("state", "reason", "suspended", "side"),
    [
        (DomainState.RUNNING, "booted", False, SourceSide.RUNNING),
        (DomainState.BLOCKED, "booted", False, SourceSide.RUNNING),
        (DomainState.PAUSED, "user", False, SourceSide.PAUSED),
        (DomainState.PAUSED, "user", True, SourceSide.SWITCHING),
        (DomainState.PAUSED, "ioerror", True, SourceSide.PAUSED),
        (DomainState.PAUSED, "migration", False, SourceSide.SWITCHING),
        (DomainState.PAUSED, "post-copy", False, SourceSide.POST_COPY),
        (DomainState.PAUSED, "post-copy-failed", False, SourceSide.POST_COPY),
        (DomainState.SHUTOFF, "migrated", False, SourceSide.MIGRATED),
        (DomainState.SHUTOFF, "shutdown", False, SourceSide.ENDED),
        (DomainState.CRASHED, "panicked", False, SourceSide.ENDED),
    ],
)
def test_how_the_source_is_read(state: DomainState, reason: str, suspended: bool, side: SourceSide) -> None:
    record = DomainRecord(uuid="u", name="n", state=state, reason=reason, persistent=True)
    assert source_side(record, suspended=suspended) is side


def test_a_source_without_a_domain() -> None:
    assert source_side(None, suspended=False) is SourceSide.ABSENT


@pytest.mark.parametrize(
    ("state", "side"),
    [
        (None, TargetSide.UNREACHABLE),
        (TargetState(attempt="x", known=False), TargetSide.UNREACHABLE),
        (TargetState(attempt="x", known=True), TargetSide.NONE),
        (TargetState(attempt="x", known=True, adopted=True), TargetSide.ENDED),
        (TargetState(attempt="x", known=True, domain="paused", reason="migration"), TargetSide.INCOMING),
        (TargetState(attempt="x", known=True, domain="paused", reason="starting-up"), TargetSide.INCOMING),
        (TargetState(attempt="x", known=True, domain="paused", reason="user"), TargetSide.ACTIVE),
        (TargetState(attempt="x", known=True, domain="running", reason="migrated"), TargetSide.ACTIVE),
        (TargetState(attempt="x", known=True, domain="running", reason="post-copy"), TargetSide.POST_COPY),
        (
            TargetState(attempt="x", known=True, domain="running", reason="post-copy-failed"),
            TargetSide.POST_COPY_FAILED,
        ),
        (TargetState(attempt="x", known=True, domain="shutoff", reason="shutdown"), TargetSide.ENDED),
    ],
)
def test_how_the_target_is_read(state: TargetState | None, side: TargetSide) -> None:
    assert target_side(state) is side
