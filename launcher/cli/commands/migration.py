# SPDX-License-Identifier: Apache-2.0
"""``launcherctl migration``: recorded migrations, and what the rules make of them. Needs no agent."""

from __future__ import annotations

import json
from typing import BinaryIO

import click


@click.group("migration")
def migration_group() -> None:
    """Look into recorded migrations."""


@migration_group.command("replay")
@click.argument("file", type=click.File("rb"))
@click.option("--classic", is_flag=True, help="Decide as KubeVirt does, in the mode the series names.")
@click.option("--rules", "name", help="Decide by these rules (default: standard); see docs/migration.md.")
def replay_series(file: BinaryIO, classic: bool, name: str | None) -> None:
    """Feed a recorded series (FILE, - is standard input) to the rules; print each decision as a JSON line.

    Every call is taken to work. A line has the step, the time, the calls, the detector's verdict and the
    reason.
    """
    from launcher.migration.replay import read_series, replay, rule_names

    names = rule_names()
    if name is not None and (classic or name not in names):
        said = "goes without --classic" if classic else f"there are {', '.join(names)}"
        raise click.BadParameter(said, param_hint="--rules")
    for line in replay(read_series(file.read()), policy="" if classic else name or names[0]):
        calls = [
            {"call": call.call} | ({} if call.value is None else {"value": call.value}) for call in line.calls
        ]
        shown: dict[str, object] = {"step": line.step, "nowMs": line.now_ms, "calls": calls}
        if line.action:
            shown["action"] = line.action
        shown["reason"] = line.reason
        click.echo(json.dumps(shown))
