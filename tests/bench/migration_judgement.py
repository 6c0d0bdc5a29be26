# SPDX-License-Identifier: Apache-2.0
"""The rows of the migration report: what a guest does, what was consented to, and whether it held. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from launcher.lab.ticks import Chunk, after_leaving, continuity, mishaps, parse
from launcher.migration.options import QEMU_MAX_DOWNTIME_MS
from launcher.migration.policy import PauseGuest, SetMaxDowntime
from launcher.migration.progress import MigrationReport
from launcher.migration.recording import Recording

CAP_MIB = 16
CONSENT_MS = 900
"""The default of maxDowntimeMs."""
TICK_MS = 100
SET_MIB = 48
MEMORY_MIB = 192
FETCH_MS = SET_MIB * 1000 // CAP_MIB
"""What a guest in post-copy may wait for: all that it writes to, at the cap."""
NOISE_MS = 1000
"""Emulated guests stand still for so long at times when other processes want the machine's cores."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What the guest does: ``dirty`` is its init's argument. ``fits``: it writes less than may be sent."""

    name: str
    dirty: str
    told: str
    fits: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Consent:
    """What its MigrationPolicy allows. ``forced``: an end may be forced."""

    name: str
    spec: str
    forced: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One migration as it went; ``wrong`` is empty when nothing was."""

    load: Load
    consent: Consent
    outcome: str
    total_ms: int
    downtime_ms: int | None
    allowed_ms: int
    gap_ms: int
    passes: int
    how: str
    wrong: tuple[str, ...] = ()


LOADS = (
    Load(name="idle", dirty="", told="writes nothing", fits=True),
    Load(name="below", dirty=f"{SET_MIB},6", told="6 MiB/s", fits=True),
    Load(name="near", dirty=f"{SET_MIB},14", told="14 MiB/s", fits=False),
    Load(name="above", dirty=f"{SET_MIB},40", told="40 MiB/s", fits=False),
    Load(name="bursty", dirty=f"{SET_MIB},40,8,12", told="40 MiB/s for 8 s of each 20 s", fits=True),
)
CONSENTS = (
    Consent(name="default", spec="", forced=False),
    Consent(name="post-copy", spec="allowPostCopy: true", forced=True),
    Consent(name="disruption", spec="allowWorkloadDisruption: true", forced=True),
    Consent(name="neither", spec="allowPostCopy: false\n  allowWorkloadDisruption: false", forced=False),
)


def chosen(words: str) -> list[tuple[Load, Consent]]:
    """The rows that ``words`` name: ``LOAD``, ``LOAD/CONSENT`` or ``/CONSENT``, with commas; empty: all.

    Raises:
        ValueError: one of them names no row.
    """
    rows = [(load, consent) for load in LOADS for consent in CONSENTS]
    if not words:
        return rows
    found = []
    for word in words.split(","):
        load_name, _, consent_name = word.partition("/")
        named = [(load, consent) for load, consent in rows if load_name in ("", load.name)]
        named = [(load, consent) for load, consent in named if consent_name in ("", consent.name)]
        if not named or not word.strip("/"):
            loads = ", ".join(load.name for load in LOADS)
            consents = ", ".join(consent.name for consent in CONSENTS)
            raise ValueError(f"no row is {word!r}: LOAD/CONSENT, of {loads} and {consents}")
        found += named
    return found


def judge(
    load: Load, consent: Consent, chunks: Sequence[Chunk], report: MigrationReport, read: Recording
) -> Row:
    """What the guest's consoles, the agent's report and the recording say of one migration."""
    ticks = parse(chunks)
    found = continuity(ticks)
    text = b"".join(chunk.data for chunk in chunks).decode(errors="replace")
    downtime = report.downtime_ms
    how, allowed = _how(report, read), CONSENT_MS + (_forced_ms(read) or 0)
    gap_allowed = allowed + (FETCH_MS if report.post_copy else 0) + TICK_MS + NOISE_MS
    gap_ms = round(found.longest_gap_s * 1000) if found else 0
    wrong = [f"the guest says: {line.strip()}" for line in mishaps(text.split("\n"))][:4]
    if found is None or found.missing:
        wrong.append(f"ticks are missing: {_few(found.missing) if found else 'all'}")
    if found and found.twice:
        wrong.append(f"ticks came twice: {_few(found.twice)}")
    late = after_leaving(ticks)
    if late:
        wrong.append(f"it went on where it had left: tick {late[0].number} on {late[0].node}")
    if report.succeeded and downtime is None:
        wrong.append("its downtime is not known")
    if downtime is not None and downtime > allowed:
        wrong.append(f"it stood still for {downtime} ms, {allowed} ms were consented to")
    if gap_ms > gap_allowed:
        wrong.append(f"nothing came for {gap_ms} ms, {gap_allowed} ms can be explained")
    if not report.succeeded and (load.fits or consent.forced):
        wrong.append("it was to move")
    return Row(
        load=load,
        consent=consent,
        outcome="moved" if report.succeeded else "stayed",
        total_ms=report.total_ms or 0,
        downtime_ms=downtime,
        allowed_ms=allowed,
        gap_ms=gap_ms,
        passes=report.iterations or 0,
        how=how,
        wrong=tuple(wrong),
    )


def _few(numbers: Sequence[int]) -> str:
    more = f" and {len(numbers) - 5} more" if len(numbers) > 5 else ""
    return ", ".join(map(str, numbers[:5])) + more


def _forced_ms(read: Recording) -> int | None:
    """When the guest was made to stand still beyond maxDowntimeMs: how long what was left then would take."""
    at = None
    for outcome in read.outcomes:
        action = outcome.action
        stop = isinstance(action, SetMaxDowntime) and action.ms == QEMU_MAX_DOWNTIME_MS
        if outcome.ok and (stop or isinstance(action, PauseGuest)):
            at = outcome.t
            break
    if at is None:
        return None
    before = [sample for sample in read.samples if sample.t <= at and sample.remaining is not None]
    return (before[-1].remaining or 0) * 1000 // (CAP_MIB << 20) if before else 0


def _how(report: MigrationReport, read: Recording) -> str:
    if not report.succeeded:
        return report.reason.partition(";")[0]
    if report.post_copy:
        return "post-copy"
    forced = _forced_ms(read)
    if forced is not None:
        return f"stopped, with {forced} ms left"
    limits = [o.action.ms for o in read.outcomes if o.ok and isinstance(o.action, SetMaxDowntime)]
    return f"pre-copy, limit at {limits[-1]} ms" if limits else "pre-copy"


def line(row: Row) -> str:
    """A row for those who wait for the table."""
    downtime = f"{row.downtime_ms} ms" if row.downtime_ms is not None else "none"
    return (
        f"{row.load.name:8}{row.consent.name:12}{row.outcome:8}{row.total_ms / 1000:7.1f} s {downtime:>9} of "
        f"{row.allowed_ms:5} {row.gap_ms:6} ms {row.passes:4} passes  {row.how}  {'; '.join(row.wrong)}"
    )


def table(rows: Sequence[Row]) -> Iterator[str]:
    """The report, in Markdown."""
    yield f"Guest of {MEMORY_MIB} MiB, {SET_MIB} MiB of them written; at most {CAP_MIB} MiB/s are sent."
    yield ""
    yield (
        "| guest writes | allowed | outcome | total | downtime | consented to | longest gap | passes "
        "| how it ended |"
    )
    yield "|---|---|---|---:|---:|---:|---:|---:|---|"
    for row in rows:
        downtime = f"{row.downtime_ms} ms" if row.downtime_ms is not None else ""
        yield (
            f"| {row.load.told} | {row.consent.name} | {row.outcome} | {row.total_ms / 1000:.1f} s "
            f"| {downtime} | {row.allowed_ms} ms | {row.gap_ms} ms | {row.passes} | {row.how} |"
        )
    yield ""
    wrong = [row for row in rows if row.wrong]
    yield from (f"WRONG: {row.load.name}/{row.consent.name}: {'; '.join(row.wrong)}" for row in wrong)
    if not wrong:
        yield "No tick was lost or came twice, memory was as written, downtimes and gaps were consented to."
