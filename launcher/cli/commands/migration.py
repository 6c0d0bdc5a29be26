# SPDX-License-Identifier: Apache-2.0
"""``launcherctl migration``: what a migration did and why, and what other rules make of its recording."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

import click

from launcher.cli import exits
from launcher.cli.session import current, namespace_option

if TYPE_CHECKING:
    from launcher.migration.recording import Recording
    from launcher.migration.replay import ReplayLine

Function = TypeVar("Function", bound=Callable[..., Any])


@click.group("migration")
def migration_group() -> None:
    """Look into migrations and their recordings."""


def recording_source(function: Function) -> Function:
    """``NAME``, or ``-f FILE``: a recording that was exported."""
    file = click.option("-f", "--filename", "file", type=click.File("rb"), help="A recording (- is stdin).")
    return click.argument("name", required=False)(namespace_option(attempt_option(file(function))))


def attempt_option(function: Function) -> Function:
    """``--attempt N``."""
    text = "Which attempt of the migration, from 1 (default: the last)."
    return click.option("--attempt", type=click.IntRange(min=1), default=None, help=text)(function)


def _lines(name: str | None, file: BinaryIO | None, attempt: int | None) -> bytes:
    """The text of a recording.

    Raises:
        click.UsageError: neither or both were named.
    """
    if (name is None) == (file is None):
        raise click.UsageError("name a migration, or a recording with -f FILE")
    if file is not None:
        return file.read()
    session = current()
    with session.client() as client:
        return client.migrations.recording(name or "", namespace=session.namespace, attempt=attempt or 0)


@migration_group.command("show")
@recording_source
def show(name: str | None, file: BinaryIO | None, attempt: int | None) -> None:
    """Tell what the migration NAME did, when and why, and how it ended."""
    from launcher.migration.recording import read_recording

    for line in _told(read_recording(_lines(name, file, attempt))):
        click.echo(line)


@migration_group.command("record")
@click.argument("name")
@namespace_option
@attempt_option
@click.option("-o", "--output", type=click.Path(dir_okay=False), help="Where to write it (default: stdout).")
def record(name: str, attempt: int | None, output: str | None) -> None:
    """Export all that the migration NAME saw and decided, as JSON lines.

    `migration show`, `plot` and `replay` read it again, also where there is no agent.
    """
    lines = _lines(name, None, attempt)
    if output is None:
        sys.stdout.write(lines.decode())
    else:
        Path(output).write_bytes(lines)


@migration_group.command("plot")
@recording_source
@click.option("-o", "--output", type=click.Path(dir_okay=False), help="Write an SVG instead (- is stdout).")
def plot(name: str | None, file: BinaryIO | None, attempt: int | None, output: str | None) -> None:
    """Draw the migration NAME: what remained, bandwidth, dirty rate, downtime limit, decisions."""
    from launcher.migration.curves import curves
    from launcher.migration.recording import read_recording

    drawn = curves(read_recording(_lines(name, file, attempt)))
    if output is None:
        from launcher.cli.plot import terminal

        terminal.show(drawn, sys.stdout)
        return
    from launcher.cli.plot.svg import svg

    if output == "-":
        click.echo(svg(drawn), nl=False)
    else:
        Path(output).write_text(svg(drawn))


@migration_group.command("replay")
@click.argument("file", type=click.File("rb"))
@click.option("--classic", is_flag=True, help="Decide as KubeVirt does, in the mode the series names.")
@click.option("--rules", "name", help="Decide by these rules; see docs/migration.md.")
@click.option("--check", is_flag=True, help="Compare with what was decided when it was recorded.")
def replay_series(file: BinaryIO, classic: bool, name: str | None, check: bool) -> int:
    """Feed a series (FILE, - is standard input) to the rules; print each decision as a JSON line.

    FILE is a recording (`migration record`), which is shown to the rules that made it unless others are
    named, or a series of samples, which is shown to the default rules and where every call is taken to work.
    A line has the step, the time, the calls, the detector's verdict and the reason.

    With --check the exit status is 1 when the decisions are not those of the recording.
    """
    from launcher.migration.recording import is_recording, read_recording
    from launcher.migration.replay import read_series, replay, rule_names

    names = rule_names()
    if name is not None and (classic or name not in names):
        said = "goes without --classic" if classic else f"there are {', '.join(names)}"
        raise click.BadParameter(said, param_hint="--rules")
    text = file.read()
    if is_recording(text):
        return _rerun(read_recording(text), classic=classic, rules=name or "", check=check)
    if check:
        raise click.BadParameter("only a recording tells what was decided", param_hint="--check")
    _print(replay(read_series(text), policy="" if classic else name or names[0]))
    return exits.OK


def _rerun(recording: Recording, *, classic: bool, rules: str, check: bool) -> int:
    from launcher.migration.rerun import classic_rules, recorded, rerun

    lines = rerun(recording, rules=classic_rules(recording) if classic else rules)
    _print(lines)
    if check and lines != recorded(recording):
        click.echo("error: these are not the decisions of the recording", err=True)
        return exits.ERROR
    return exits.OK


def _print(lines: Iterable[ReplayLine]) -> None:
    for line in lines:
        calls = [
            {"call": call.call} | ({} if call.value is None else {"value": call.value}) for call in line.calls
        ]
        shown: dict[str, object] = {"step": line.step, "nowMs": line.now_ms, "calls": calls}
        if line.action:
            shown["action"] = line.action
        shown["reason"] = line.reason
        click.echo(json.dumps(shown))


def _told(recording: Recording) -> Iterable[str]:
    from launcher.migration.curves import curves
    from launcher.units import human_bytes

    header, drawn, samples = recording.header, curves(recording), recording.samples
    options = header.options
    yield drawn.title
    yield f"  Began:    {header.at}"
    yield f"  Outcome:  {drawn.outcome}"
    consent = [
        text
        for text, given in (
            ("post-copy", options.allow_post_copy),
            ("disruption", options.allow_workload_disruption),
            ("auto-converge", options.allow_auto_converge),
        )
        if given
    ]
    cap = f"{human_bytes(options.bandwidth_bps)}/s" if options.bandwidth_bps else "no limit"
    if header.rules:
        yield (
            f"  Rules:    {header.rules}, up to {options.max_downtime_ms} ms of downtime; "
            f"allowed: {', '.join(consent) or 'nothing more'}"
        )
        yield f"  Guest:    {human_bytes(header.workload.memory_bytes)} of memory, bandwidth: {cap}"
    else:
        yield "  Rules:    none: all volumes are copied, then the guest is changed over to the copies"
        writes = "wait for the copy" if options.allow_auto_converge else "do not wait for the copy"
        yield (
            f"  Volumes:  {human_bytes(header.workload.disk_bytes)}, bandwidth: {cap}; "
            f"the guest's writes {writes}"
        )
    thin = ", then thinned out" if recording.thinned else ""
    passes = f"; {len(drawn.passes)} passes" if header.rules else ""
    yield f"  Recorded: {len(samples)} samples over {drawn.seconds:.1f} s{thin}{passes}"
    if drawn.post_copy is not None:
        yield f"  The guest ran on the target from {drawn.post_copy:.1f} s on."
    yield from (f"  {mark.t:8.1f} s  {mark.text}: {mark.reason}" for mark in drawn.marks)
