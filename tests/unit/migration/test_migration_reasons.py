# SPDX-License-Identifier: Apache-2.0
"""What an end that needs two sides is told as."""

from __future__ import annotations

import pytest

from launcher.migration.cause import Cause
from launcher.migration.ownership import SourceSide, TargetSide, judge
from launcher.migration.reasons import failure, left_behind
from launcher.migration.resolve import Resolved


def seen(source: SourceSide, source_reason: str, target: TargetSide, target_reason: str = "") -> Resolved:
    return Resolved(
        verdict=judge(source, target),
        source=source,
        target=target,
        source_reason=source_reason,
        target_reason=target_reason,
    )


@pytest.mark.parametrize("source", [SourceSide.SWITCHING, SourceSide.PAUSED])
@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        ("shutdown", Cause.GUEST_ENDED),
        ("crashed", Cause.UNRESOLVED),
        ("failed", Cause.UNRESOLVED),
        ("destroyed", Cause.UNRESOLVED),
        ("", Cause.UNRESOLVED),
    ],
)
def test_a_guest_that_ended_there_while_it_is_stopped_here(
    source: SourceSide, reason: str, cause: Cause
) -> None:
    """Only one that powered off is known to have run there; its stopped copy here never runs again then."""
    resolved = seen(source, "migration", TargetSide.ENDED, reason)
    assert failure(resolved, Cause.HYPERVISOR, "eof")[0] is cause
    assert (left_behind(resolved) != "") is (cause is Cause.GUEST_ENDED)


@pytest.mark.parametrize(
    ("reason", "post_copy", "cause"),
    [
        ("shutdown", False, Cause.GUEST_ENDED),
        ("shutdown", True, Cause.UNRESOLVED),
        ("crashed", False, Cause.UNRESOLVED),
        ("destroyed", False, Cause.UNRESOLVED),
        ("unknown", True, Cause.UNRESOLVED),
    ],
)
def test_a_source_that_is_off_while_the_target_does_not_answer(
    reason: str, post_copy: bool, cause: Cause
) -> None:
    resolved = seen(SourceSide.ENDED, reason, TargetSide.UNREACHABLE)
    assert failure(resolved, Cause.HYPERVISOR, "eof", post_copy=post_copy)[0] is cause
    assert left_behind(resolved) == ""


@pytest.mark.parametrize("target", [TargetSide.POST_COPY, TargetSide.UNREACHABLE])
def test_halves_of_which_nothing_is_proven_are_kept(target: TargetSide) -> None:
    resolved = seen(SourceSide.POST_COPY, "post-copy-failed", target)
    cause, why = failure(resolved, Cause.HYPERVISOR, "eof", post_copy=True)
    assert (cause, "both halves are kept" in why) == (Cause.POST_COPY_FAILED, True)
