# SPDX-License-Identifier: Apache-2.0
"""``launcherctl migrate``, ``migrate-cancel`` and ``migrate-recover``."""

from __future__ import annotations

import secrets
from contextlib import closing
from typing import TYPE_CHECKING, Any

import click

from launcher.cli import exits
from launcher.cli.resource import vmi_arguments
from launcher.cli.session import current, namespace_option
from launcher.errors import LauncherError, NotFound

if TYPE_CHECKING:
    from launcher.cli.client import Client

# Kubernetes' generateName adds five characters; nothing in them can be read as a word.
_LETTERS = "bcdfghjklmnpqrstvwxz2456789"


@click.command()
@vmi_arguments
@namespace_option
@click.option("--to", "target", metavar="NODE", default="", help="A peer of the node, or ADDRESS:PORT.")
@click.option(
    "--volume",
    "moves",
    metavar="VOLUME=CLAIM[=PATH[,block][,capacity=10Gi]…]",
    multiple=True,
    help="Copy the volume to another claim, which lies at PATH on the node that the instance goes to.",
)
@click.option("--name", "migration_name", help="Name of the migration (default: made up).")
@click.option("--watch", is_flag=True, help="Show how it goes, and a report at the end.")
def migrate(name: str, target: str, moves: tuple[str, ...], migration_name: str | None, watch: bool) -> int:
    """Migrate the instance NAME to another node while it runs.

    With --volume it goes on with copies of its disks in other claims; without --to it stays on its node, and
    only its volumes move. With --watch the exit status is 1 when the migration failed. Ctrl+C stops only the
    watching.
    """
    if not target and not moves:
        raise click.UsageError("say where to: --to NODE, or --volume for its volumes alone")
    session = current()
    made = migration_name or f"{name}-{''.join(secrets.choice(_LETTERS) for _ in range(5))}"
    manifest = {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstanceMigration",
        "metadata": {"name": made, "namespace": session.namespace},
        "spec": {"vmiName": name},
    }
    with session.client() as client:
        _create(client, manifest, target, moves, session.namespace)
        click.echo(f"virtualmachineinstancemigration.kubevirt.io/{made} created")
        return _watch(client, made, session.namespace) if watch else exits.OK


def _create(
    client: Client, manifest: dict[str, Any], target: str, moves: tuple[str, ...], namespace: str
) -> None:
    from launcher.cli.moves import ask_moves, take_back

    before = ask_moves(client, manifest["spec"]["vmiName"], namespace, moves) if moves else None
    try:
        client.migrations.create(manifest, target=target, namespace=namespace)
    except LauncherError:
        if before is not None:
            take_back(client, before, namespace)
        raise


def _watch(client: Client, name: str, namespace: str) -> int:
    from launcher.cli import progress

    try:
        with closing(client.migrations.watch(name, namespace=namespace)) as views:
            last = progress.follow(progress.endings(views))
    except KeyboardInterrupt:
        click.echo(f"the migration goes on\nhint: launcherctl migrate-cancel {name} stops it", err=True)
        raise
    except LauncherError:
        click.echo(f"lost sight of it\nhint: launcherctl describe vmim {name}", err=True)
        raise
    if last is None or not last.HasField("report"):
        click.echo(f"error: the migration has no report\nhint: launcherctl describe vmim {name}", err=True)
        return exits.ERROR
    click.echo("\n".join(progress.report_lines(last.report)))
    return exits.OK if last.report.succeeded else exits.ERROR


@click.command("migrate-cancel")
@click.argument("name")
@namespace_option
def migrate_cancel(name: str) -> None:
    """Stop the running migration of the instance NAME (or the migration NAME); the instance stays here."""
    session = current()
    with session.client() as client:
        running = _running(client, name, session.namespace)
        client.migrations.cancel(running, namespace=session.namespace)
    click.echo(f"migration {running} is being cancelled", err=True)


@click.command("migrate-recover")
@click.argument("name")
@namespace_option
@click.option("--watch", is_flag=True, help="Show how it goes, and a report at the end.")
def migrate_recover(name: str, watch: bool) -> int:
    """Try again to put together the guest of the migration NAME, or to find out which node has it.

    For migrations that failed with post-copy-failed, unresolved or conflict: nothing was thrown away.
    """
    session = current()
    with session.client() as client:
        client.migrations.recover(name, namespace=session.namespace)
        click.echo(f"migration {name} is being recovered", err=True)
        return _watch(client, name, session.namespace) if watch else exits.OK


def _running(client: Client, name: str, namespace: str) -> str:
    """The name of the migration that ``name`` means.

    Raises:
        NotFound: there is none under way.
    """
    from launcher.cli.progress import FINISHED, phase
    from launcher.rpc.struct import to_plain

    for migration in client.migrations.list(namespace=namespace):
        vmim = to_plain(migration.object)
        own = vmim.get("metadata", {}).get("name", "")
        if name in (own, vmim.get("spec", {}).get("vmiName")) and phase(migration) not in FINISHED:
            return str(own)
    raise NotFound("running migration", name, hint="launcherctl get vmim lists them")
