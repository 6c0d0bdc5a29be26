# SPDX-License-Identifier: Apache-2.0
"""The flight recorder's format: what a migration saw, what was decided and why, how it ended. Pure.

A recording is JSON lines, each with its ``kind``; the first is the header. It is written while the migration
runs, so it ends anywhere when the process does: a last line that is cut is left out.

    header      what was to be migrated, by which rules and options
    sample      what the rules were shown
    decision    what they answered to the sample before it, and how each action went
    act         an action that nobody's rules decided (a request to cancel)
    step        something done with a disk that is copied on its own node, where there are no rules
    resumed     another process went on from this state of the rules
    thinned     from here on only some samples are kept
    end         how it ended
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

import msgspec

from launcher.errors import InvalidRequest, Violation
from launcher.migration.options import Options, Workload
from launcher.migration.policy import Outcome
from launcher.migration.progress import MigrationReport
from launcher.migration.sample import Sample
from launcher.units import MIB

VERSION = 2
"""2 may have steps."""
FULL_BYTES = 4 * MIB
"""Up to here every sample is kept: at about 230 bytes each, two hours of looks at 0.4 s."""
MOST_BYTES = 8 * MIB
"""Up to here one sample in ``THIN`` is kept; past it only what was decided and the end."""
THIN = 16


class Header(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="header"):
    """``migration`` and ``instance`` are ``namespace/name``, ``at`` is RFC 3339, ``rules`` a name known to
    ``compose.make_policy``; empty: the guest stays on its node, its volumes are moved, no rules decide."""

    version: int
    migration: str
    instance: str
    attempt: str
    source_node: str
    target_node: str
    rules: str
    options: Options
    workload: Workload
    at: str


class Looked(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="sample"):
    """A sample as the rules got it."""

    sample: Sample


class Decided(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="decision", omit_defaults=True
):
    """The answer to the last sample; ``label`` is a detector's verdict. Actions carry their reasons."""

    t: float
    outcomes: tuple[Outcome, ...] = ()
    label: str = ""


class Acted(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="act"):
    """An action that was not the rules'."""

    outcome: Outcome


StepName = Literal["copy", "pivot", "drop"]


class Stepped(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="step", omit_defaults=True):
    """A disk began to be copied, the guest was changed over to its copy, or the copy was ended; ``error``
    empty: it worked."""

    t: float
    step: StepName
    volume: str
    reason: str
    error: str = ""


class Resumed(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="resumed"):
    """Another process took over, ``t`` seconds after the job began; ``state`` is what the rules knew."""

    t: float
    at: str
    state: str


class Thinned(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="thinned"):
    """The recording got long: samples are missing from here on."""

    t: float


class Ended(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="end"):
    """The last line of a migration that ended."""

    at: str
    phase: str
    cause: str
    reason: str
    report: MigrationReport | None


Entry = Looked | Decided | Acted | Stepped | Resumed | Thinned | Ended
_LINE = msgspec.json.Decoder(Header | Looked | Decided | Acted | Stepped | Resumed | Thinned | Ended)


class Recording(msgspec.Struct, frozen=True, kw_only=True):
    """A whole recording, in the order it was written."""

    header: Header
    entries: tuple[Entry, ...]

    @property
    def samples(self) -> tuple[Sample, ...]:
        """All samples."""
        return tuple(entry.sample for entry in self.entries if isinstance(entry, Looked))

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        """All actions as performed, whoever decided them."""
        found: list[Outcome] = []
        for entry in self.entries:
            if isinstance(entry, Decided):
                found += entry.outcomes
            elif isinstance(entry, Acted):
                found.append(entry.outcome)
        return tuple(found)

    @property
    def steps(self) -> tuple[Stepped, ...]:
        """What was done with disks that were copied on their own node."""
        return tuple(entry for entry in self.entries if isinstance(entry, Stepped))

    @property
    def end(self) -> Ended | None:
        """How it ended; None while it runs."""
        return next((entry for entry in reversed(self.entries) if isinstance(entry, Ended)), None)

    @property
    def thinned(self) -> bool:
        """Samples are missing."""
        return any(isinstance(entry, Thinned) for entry in self.entries)


class Recorder(Protocol):
    """Where entries go. Recording must never stop a migration: failures are its own affair."""

    def note(self, entry: Entry) -> None:
        """Keep an entry; never blocks."""

    async def flush(self) -> None:
        """Bring what was noted to where it outlives the process."""


class NoRecorder:
    """Keeps nothing."""

    def note(self, entry: Entry) -> None:
        """See ``Recorder``."""

    async def flush(self) -> None:
        """See ``Recorder``."""


class Bound:
    """Keeps a recording small: says which entries are written, given what was written so far."""

    def __init__(self, written: int = 0) -> None:
        self._written = written
        self._thin = written > FULL_BYTES
        self._skipped = 0
        self._left_out: Looked | None = None

    def lines(self, entry: Entry) -> bytes:
        """The lines to write for ``entry``; none when it is left out."""
        found = b""
        if isinstance(entry, Looked):
            if not self._thin and self._written > FULL_BYTES:
                self._thin = True
                found = encode(Thinned(t=entry.sample.t))
            if self._thin:
                self._skipped += 1
                if self._skipped % THIN or self._written > MOST_BYTES:
                    self._left_out = entry
                    return found
        elif self._left_out is not None:  # What a decision was made from is kept.
            found = encode(self._left_out)
        self._left_out = None
        found += encode(entry)
        self._written += len(found)
        return found


def encode(entry: Header | Entry) -> bytes:
    """One line."""
    return msgspec.json.encode(entry) + b"\n"


def is_recording(text: bytes) -> bool:
    """Whether ``text`` begins as a recording does."""
    try:
        return isinstance(_LINE.decode(text.partition(b"\n")[0]), Header)
    except msgspec.DecodeError:
        return False


def read_recording(text: bytes) -> Recording:
    """Read a recording.

    Raises:
        InvalidRequest: it is none, or of a newer version, naming the line.
    """
    lines = [line for line in text.split(b"\n") if line.strip()]
    found: list[Header | Entry] = []
    for number, line in enumerate(lines, start=1):
        try:
            found.append(_LINE.decode(line))
        except msgspec.DecodeError as error:
            if number == len(lines) and number > 1 and not text.endswith(b"\n"):
                break
            raise _invalid(number, str(error)) from error
    header = found[0] if found else None
    if not isinstance(header, Header):
        raise _invalid(1, "a recording begins with its header")
    if header.version > VERSION:
        raise _invalid(1, f"version {header.version}; this launcher reads up to {VERSION}")
    return Recording(header=header, entries=_entries(found[1:]))


def _entries(found: Sequence[Header | Entry]) -> tuple[Entry, ...]:
    for number, entry in enumerate(found, start=2):
        if isinstance(entry, Header):
            raise _invalid(number, "a second header")
    return tuple(entry for entry in found if not isinstance(entry, Header))


def _invalid(number: int, message: str) -> InvalidRequest:
    return InvalidRequest([Violation(field=f"line {number}", type="FieldValueInvalid", message=message)])
