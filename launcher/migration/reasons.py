# SPDX-License-Identifier: Apache-2.0
"""Sentences and causes: why a guest is not migrated, and how an attempt that failed is told. Pure."""

from __future__ import annotations

from launcher.hypervisor.port import DomainState
from launcher.migration.cause import Cause
from launcher.migration.ownership import HALVES, SourceSide, TargetSide, Verdict
from launcher.migration.resolve import Resolved

STOPPED = frozenset({SourceSide.SWITCHING, SourceSide.PAUSED})


def unfit(state: DomainState, reason: str) -> str:
    """Why a guest in this state is not migrated, empty when it may be."""
    if state in (DomainState.RUNNING, DomainState.BLOCKED):
        return ""
    if state is DomainState.PAUSED and reason == "user":
        return ""
    if state is DomainState.PAUSED:
        return f"the guest is paused ({reason}), not by its user; solve that first"
    return f"the guest does not run: its state is {state.value} ({reason})"


# What libvirtd says when the connection to the other one broke: that one ended, or the link did.
_BROKE = (
    "client socket is closed",
    "keepalive timeout",
    "End of file while reading data",
    "Cannot recv data",
)
_UNREACHABLE = (
    "No route to host",
    "Network is unreachable",
    "Connection timed out",
    "unable to connect to server at",
)
STILL_S = 2.0
"""A link over which nothing came for so long before the connection broke is what broke: a daemon that ends
is noticed at once, its silence after 3.5 s at the earliest (a few retransmissions), as a rule after 30 s."""


def cause_of(error: str, *, still_s: float) -> Cause:
    """The cause of what the migrate call said, if the guest stayed; ``still_s``: nothing moved before it."""
    if any(words in error for words in _UNREACHABLE):
        return Cause.LINK
    if any(words in error for words in _BROKE):
        return Cause.LINK if still_s >= STILL_S else Cause.INTERRUPTED
    return Cause.HYPERVISOR


def failure(resolved: Resolved, cause: Cause, reason: str, *, post_copy: bool = False) -> tuple[Cause, str]:
    """Cause and sentence of an attempt whose guest did not move, or is nobody's."""
    match resolved.verdict:
        case Verdict.SOURCE_KEEPS:
            notes = [reason, resolved.note]
            if resolved.source is SourceSide.PAUSED and resolved.source_reason != "user":
                notes.append(f"the guest is paused on the source ({resolved.source_reason})")
            return cause, "; ".join(filter(None, notes))
        case Verdict.HALF_LOST:
            return given_up(resolved, reason)
        case Verdict.GUEST_ENDED if resolved.source in STOPPED and not powered_off_there(resolved):
            ended = f"on the target ({resolved.target_reason or 'its domain is gone'})"
            return (
                Cause.UNRESOLVED,
                f"the guest ended {ended} just when it was handed over; the source's is kept",
            )
        case Verdict.GUEST_ENDED if resolved.source in STOPPED:
            return Cause.GUEST_ENDED, "the guest ended on the target"
        case Verdict.GUEST_ENDED:
            return Cause.GUEST_ENDED, f"the guest ended during the migration ({resolved.source_reason})"
        case Verdict.WAIT if resolved.source is SourceSide.ENDED and resolved.target in HALVES:
            why = "the target has not said yet that it cannot go on, or could not be freed of its half"
            return Cause.POST_COPY_FAILED, f"the source's half of the guest is gone, and {why}: {reason}"
        case Verdict.POST_COPY_BROKEN:
            return Cause.POST_COPY_FAILED, f"post-copy failed, both halves are kept: {reason}"
        case Verdict.WAIT if resolved.source is SourceSide.POST_COPY:
            said = "; ".join(filter(None, (reason, resolved.note)))
            return Cause.POST_COPY_FAILED, f"post-copy failed, both halves are kept: {said}"
        case Verdict.WAIT if _powered_off(resolved) and not post_copy:
            return Cause.GUEST_ENDED, "the guest ended during the migration (shutdown)"
        case Verdict.CONFLICT:
            return Cause.CONFLICT, "the guest seems to run on both nodes; an operator must decide"
        case Verdict.LOST:
            return Cause.LOST, f"the source gave the guest away and the target does not have it: {reason}"
        case _:
            sides = f"source: {resolved.source.value}, target: {resolved.target.value}"
            said = resolved.note or reason
            return Cause.UNRESOLVED, f"who owns the guest could not be proven in time ({sides}): {said}"


def given_up(resolved: Resolved, reason: str) -> tuple[Cause, str]:
    """Cause and sentence of a guest of which one half ended in post-copy."""
    if powered_off_there(resolved):
        return Cause.GUEST_ENDED, "the guest ended on the target, before all of its memory was there"
    side, other = ("target", "source") if resolved.source is SourceSide.POST_COPY else ("source", "target")
    return Cause.LOST, (
        f"the guest was lost in post-copy: QEMU ended on the {side}, so its half on the {other} was, too; "
        f"its disks are as after a crash (crash-consistent), and it may be started from them: {reason}"
    )


def left_behind(resolved: Resolved) -> str:
    """What is said of a guest that powered off on the target while it is still, stopped, on the source: that
    one must never run again. Empty: there is none."""
    ended = resolved.verdict is Verdict.GUEST_ENDED and resolved.source in STOPPED
    return "the guest ended on the target" if ended and powered_off_there(resolved) else ""


def powered_off_there(resolved: Resolved) -> bool:
    """The guest itself powered off on the target, so it ran there; its QEMU may have ended before that."""
    return resolved.target is TargetSide.ENDED and resolved.target_reason == "shutdown"


def _powered_off(resolved: Resolved) -> bool:
    """The guest itself powered off here, so it was not handed over to a target that does not answer."""
    ended = resolved.source is SourceSide.ENDED and resolved.source_reason == "shutdown"
    return ended and resolved.target is TargetSide.UNREACHABLE
