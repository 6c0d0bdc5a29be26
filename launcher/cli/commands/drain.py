# SPDX-License-Identifier: Apache-2.0
"""``launcherctl drain``."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import click

from launcher.cli import exits
from launcher.cli.session import current
from launcher.units import human_ms

if TYPE_CHECKING:
    from launcher.v1.drain_pb2 import DrainResponse


@click.command()
@click.option("--to", "targets", metavar="NODE,...", default="", help="Where to (default: all peers).")
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@click.option("--undo", is_flag=True, help="Take back the marks that a drain left on instances.")
@click.argument("instances", metavar="[NAMESPACE/NAME]...", nargs=-1)
def drain(targets: str, dry_run: bool, undo: bool, instances: tuple[str, ...]) -> int:
    """Move all instances of the node (or those named) to other nodes while they run.

    By spec.evictionStrategy: LiveMigrate and LiveMigrateIfPossible are moved, None and External stay; an
    instance that names none has the node's eviction_strategy. Longest first, as many at a time as the node's
    limits allow, each to the node with most memory left. Until it ends the node takes no other instances.

    The exit status is 0 when nothing is left, 1 when something stays: it is listed with the reason. Ctrl+C
    begins no more; migrations under way go on.
    """
    from launcher.v1.drain_pb2 import DrainResponse

    if undo and (dry_run or targets):
        raise click.UsageError("--undo goes with neither --to nor --dry-run")
    wanted = [node.strip() for node in targets.split(",") if node.strip()]
    names = [name if "/" in name else f"{current().namespace}/{name}" for name in instances]
    left: list[DrainResponse] = []
    moved = 0
    with (
        current().client() as client,
        closing(client.drain(wanted, names, dry_run=dry_run, undo=undo)) as steps,
    ):
        for step in steps:
            if step.state == DrainResponse.STATE_STAYS:
                left.append(step)
            else:
                click.echo(_line(step))
            moved += step.state == DrainResponse.STATE_MOVED
    if undo:
        return exits.OK
    for step in left:
        click.echo(f"{step.namespace}/{step.name} stays: {step.reason}", err=True)
    if not dry_run:
        click.echo(f"{moved} moved, {len(left)} left")
    return exits.ERROR if left else exits.OK


def _line(step: DrainResponse) -> str:
    from launcher.v1.drain_pb2 import DrainResponse

    name = f"{step.namespace}/{step.name}"
    match step.state:
        case DrainResponse.STATE_MOVED:
            return f"{name} is on {step.target}"
        case DrainResponse.STATE_WOULD_MOVE:
            return f"{name} would go to {step.target} ({_time(step)})"
        case _:
            return f"{name} goes to {step.target}, migration {step.migration} ({_time(step)})"


def _time(step: DrainResponse) -> str:
    return f"at least {human_ms(round(step.predicted_seconds * 1000))}"
