# SPDX-License-Identifier: Apache-2.0
"""``launcherctl delete``."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import click

from launcher.cli.resource import MIGRATION, instance_name, resource
from launcher.cli.session import current, namespace_option
from launcher.errors import NotFound, TimedOut

if TYPE_CHECKING:
    from launcher.cli.client import Client


@click.command()
@click.argument("words", nargs=-1, required=True, metavar="[vmi|vmim] NAME")
@namespace_option
@click.option("--wait", is_flag=True, help="Return when the instance is gone (at most --timeout).")
@click.option(
    "--grace-period",
    type=click.IntRange(min=0),
    help="Seconds the guest may take to shut down; 0 kills it. Default: what its manifest says.",
)
@click.option(
    "--remove-persistent-state",
    is_flag=True,
    help="Do not keep UEFI variables and TPM state for the next instance of the name; without an instance, "
    "remove what is kept.",
)
@click.option("--ignore-not-found", is_flag=True, help="It is fine when there is none.")
def delete(
    words: tuple[str, ...],
    wait: bool,
    grace_period: int | None,
    remove_persistent_state: bool,
    ignore_not_found: bool,
) -> None:
    """Stop and remove the instance NAME, or cancel and forget the migration NAME."""
    session = current()
    with session.client() as client:
        if len(words) > 1 or "/" in words[0]:
            kind, migration = resource(words)
            if kind == MIGRATION and migration is not None:
                _delete_migration(client, migration, session.namespace, ignore_not_found)
                return
        name = instance_name(words)
        try:
            client.instances.delete(
                name,
                namespace=session.namespace,
                grace_period_s=grace_period,
                remove_persistent_state=remove_persistent_state,
            )
        except NotFound:
            if not ignore_not_found:
                raise
            return
        click.echo(f'virtualmachineinstance.kubevirt.io "{name}" deleted')
        if wait:
            _until_gone(client, name, session.namespace, session.timeout_s + (grace_period or 0))


def _delete_migration(client: Client, name: str, namespace: str, ignore_not_found: bool) -> None:
    try:
        client.migrations.delete(name, namespace=namespace)
    except NotFound:
        if not ignore_not_found:
            raise
        return
    click.echo(f'virtualmachineinstancemigration.kubevirt.io "{name}" deleted')


def _until_gone(client: Client, name: str, namespace: str, timeout_s: float) -> None:
    """Wait for DELETED, or for a listing without the instance.

    Raises:
        TimedOut: it is still there after ``timeout_s``.
    """
    present = False
    try:
        with closing(client.instances.watch(namespace=namespace, name=name, timeout_s=timeout_s)) as changes:
            for change in changes:
                present = present or change.type == "ADDED"
                if change.type == "DELETED" or (change.type == "BOOKMARK" and not present):
                    return
    except TimedOut as error:
        raise TimedOut(
            f"instance {name!r} is still there after {timeout_s:g} s",
            hint="the guest may be shutting down; --grace-period 0 kills it",
        ) from error
