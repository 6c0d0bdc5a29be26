# SPDX-License-Identifier: Apache-2.0
"""Who owns a guest after a migration ended, from what both sides show. Pure: a table, nothing is asked here.

The invariants behind every cell: the source's guest is never resumed unless the target is proven to
have no domain; the source's domain is never forgotten unless the target is proven to run it (or to
have run it: libvirt says that it migrated, and it ended there); and half a guest is never ended unless the
other half is proven to be gone: its own libvirtd says so. A node that does not answer proves nothing.
"""

from __future__ import annotations

from enum import StrEnum

from launcher.hypervisor.port import DomainRecord, DomainState
from launcher.migration.peer import TargetState


class SourceSide(StrEnum):
    """What the source shows, once no migration job runs any more."""

    RUNNING = "running"
    PAUSED = "paused"
    """Stopped for a reason that is not the migration: its user, an I/O error."""
    SWITCHING = "switching"
    """Stopped for the migration, by the hypervisor or by the engine."""
    POST_COPY = "post-copy"
    """Stopped because the target took over; memory was still missing there."""
    MIGRATED = "migrated"
    """Off, and libvirt says that it migrated."""
    ENDED = "ended"
    """Off for another reason: the guest shut down, crashed or was destroyed."""
    ABSENT = "absent"


class TargetSide(StrEnum):
    """What the target shows."""

    UNREACHABLE = "unreachable"
    NONE = "none"
    """It answered, and there is no domain."""
    INCOMING = "incoming"
    """A domain that waits for the stream and never ran."""
    ACTIVE = "active"
    """A domain that finished loading: it runs, or is paused on purpose."""
    POST_COPY = "post-copy"
    """It runs, but memory is still missing."""
    POST_COPY_FAILED = "post-copy-failed"
    """It runs as far as it can, and what brought the rest of its memory broke."""
    ENDED = "ended"
    """It ran here and ended: a defined domain that is off, or an adopted one that is gone."""


class Verdict(StrEnum):
    """What to do next; ``finish`` of the peer is how the target is told."""

    SOURCE_KEEPS = "source-keeps"
    RESUME_SOURCE = "resume-source"
    DROP_TARGET = "drop-target"
    """Tell the target that it failed, then look again."""
    TARGET_OWNS = "target-owns"
    """Tell the target that it succeeded; when it confirms, forget the source's domain."""
    WAIT = "wait"
    GUEST_ENDED = "guest-ended"
    POST_COPY_BROKEN = "post-copy-broken"
    HALF_LOST = "half-lost"
    """One half is proven to be gone, so the other can never be whole: end it."""
    CONFLICT = "conflict"
    LOST = "lost"


_S, _T, _V = SourceSide, TargetSide, Verdict

HALVES = frozenset({_T.POST_COPY, _T.POST_COPY_FAILED})
"""The guest runs on the target, and only the source has what is missing there."""

# Columns: unreachable, none, incoming, active, post-copy, post-copy-failed, ended.
_COLUMNS = (
    _T.UNREACHABLE,
    _T.NONE,
    _T.INCOMING,
    _T.ACTIVE,
    _T.POST_COPY,
    _T.POST_COPY_FAILED,
    _T.ENDED,
)
_ROWS: dict[SourceSide, tuple[Verdict, ...]] = {
    _S.RUNNING: (
        _V.SOURCE_KEEPS,
        _V.SOURCE_KEEPS,
        _V.DROP_TARGET,
        _V.CONFLICT,
        _V.CONFLICT,
        _V.CONFLICT,
        _V.SOURCE_KEEPS,
    ),
    _S.PAUSED: (
        _V.WAIT,
        _V.SOURCE_KEEPS,
        _V.DROP_TARGET,
        _V.TARGET_OWNS,
        _V.POST_COPY_BROKEN,
        _V.POST_COPY_BROKEN,
        _V.GUEST_ENDED,
    ),
    _S.SWITCHING: (
        _V.WAIT,
        _V.RESUME_SOURCE,
        _V.DROP_TARGET,
        _V.TARGET_OWNS,
        _V.POST_COPY_BROKEN,
        _V.POST_COPY_BROKEN,
        _V.GUEST_ENDED,
    ),
    _S.POST_COPY: (
        _V.WAIT,
        _V.HALF_LOST,
        _V.WAIT,
        _V.TARGET_OWNS,
        _V.POST_COPY_BROKEN,
        _V.POST_COPY_BROKEN,
        _V.HALF_LOST,
    ),
    _S.MIGRATED: (
        _V.WAIT,
        _V.LOST,
        _V.WAIT,
        _V.TARGET_OWNS,
        _V.WAIT,
        _V.WAIT,
        _V.TARGET_OWNS,
    ),
    _S.ENDED: (
        _V.WAIT,
        _V.GUEST_ENDED,
        _V.DROP_TARGET,
        _V.TARGET_OWNS,
        _V.WAIT,
        _V.HALF_LOST,
        _V.GUEST_ENDED,
    ),
    _S.ABSENT: (
        _V.WAIT,
        _V.LOST,
        _V.WAIT,
        _V.TARGET_OWNS,
        _V.WAIT,
        _V.WAIT,
        _V.TARGET_OWNS,
    ),
}


def judge(source: SourceSide, target: TargetSide) -> Verdict:
    """The cell of the table."""
    return _ROWS[source][_COLUMNS.index(target)]


def source_side(record: DomainRecord | None, *, suspended: bool) -> SourceSide:
    """Read the source's domain; None: it does not exist. ``suspended``: the engine stopped the guest."""
    if record is None:
        return SourceSide.ABSENT
    if record.state in (DomainState.SHUTOFF, DomainState.CRASHED):
        return SourceSide.MIGRATED if record.reason == "migrated" else SourceSide.ENDED
    if record.state is DomainState.PAUSED:
        if record.reason.startswith("post-copy"):
            return SourceSide.POST_COPY
        if record.reason in _STOPPED_FOR_MIGRATION or (suspended and record.reason == "user"):
            return SourceSide.SWITCHING
        return SourceSide.PAUSED
    return SourceSide.RUNNING


# ``starting-up`` and ``unknown`` are what libvirtd leaves when it restarted in the middle of a switchover.
_STOPPED_FOR_MIGRATION = frozenset({"migration", "starting-up", "unknown"})


def target_side(state: TargetState | None) -> TargetSide:
    """Read the target's answer; None: it gave none. One that does not know the attempt proves nothing."""
    if state is None or not state.known:
        return TargetSide.UNREACHABLE
    if not state.domain:
        return TargetSide.ENDED if state.adopted else TargetSide.NONE
    if state.domain in (DomainState.SHUTOFF, DomainState.CRASHED):
        return TargetSide.ENDED
    if state.reason == "post-copy-failed":
        return TargetSide.POST_COPY_FAILED
    if state.reason.startswith("post-copy"):
        return TargetSide.POST_COPY
    if state.domain == DomainState.NOSTATE:
        return TargetSide.INCOMING
    if state.domain == DomainState.PAUSED and state.reason in _STOPPED_FOR_MIGRATION:
        return TargetSide.INCOMING
    return TargetSide.ACTIVE
