# SPDX-License-Identifier: Apache-2.0
"""``launcherctl backup``: full and incremental backups of disks whose changed blocks are tracked."""

from __future__ import annotations

import click

from launcher.cli.commands.snapshot import print_copies, told
from launcher.cli.resource import instance_name, vmi_arguments
from launcher.cli.session import asked_namespace, current, namespace_option
from launcher.cli.table import table

_CHECKPOINT_COLUMNS = ("NAMESPACE", "VMI", "NAME", "CREATED", "VOLUMES", "INVALID")
_LONGEST_S = 2 * 86400.0


@click.group(short_help="Back up a running instance, also incrementally.")
def backup() -> None:
    """Back up the disks of a running instance that have changedBlockTracking.

    Each backup makes a checkpoint; --incremental copies only what changed since one. A pushed backup is
    written by QEMU to qcow2 files; one that is pulled is served by NBD until it is ended.
    """


@backup.command()
@vmi_arguments
@namespace_option
@click.option("--name", "backup_name", default="", help="Name of the backup (default: with the time).")
@click.option("--mode", type=click.Choice(["push", "pull"]), default="push", show_default=True)
@click.option("--to", "directory", default="", help="Directory of the node that a pushed backup goes to.")
@click.option("--to-volume", "destination", metavar="NAME", default="", help="Or: the utility volume.")
@click.option("--listen", default="", help="Serve at ADDRESS:PORT with TLS (default: a unix socket).")
@click.option("--incremental", metavar="CHECKPOINT", default="", help="Only what changed since then.")
@click.option("--volume", "volumes", multiple=True, help="Only this volume; may be repeated.")
@click.option("--skip-quiesce", is_flag=True, help="Do not freeze the guest's file systems.")
@click.option("--deadline", type=click.IntRange(min=0), default=0, help="Abort after so many seconds.")
@click.option("--no-wait", is_flag=True, help="Do not wait until a pushed backup is written.")
def begin(
    name: str,
    backup_name: str,
    mode: str,
    directory: str,
    destination: str,
    listen: str,
    incremental: str,
    volumes: tuple[str, ...],
    skip_quiesce: bool,
    deadline: int,
    no_wait: bool,
) -> int:
    """Begin a backup of the instance NAME. The exit status is 1 if it fails."""
    session = current()
    with session.client() as client:
        copy = client.backups.begin_backup(
            name,
            backup=backup_name,
            mode=mode,
            directory=directory,
            destination=destination,
            listen=listen,
            incremental=incremental,
            volumes=volumes,
            skip_quiesce=skip_quiesce,
            deadline_s=deadline,
            namespace=session.namespace,
        )
        if mode == "push" and not no_wait:
            copy = client.backups.wait(copy, timeout_s=_LONGEST_S)
    status = told(copy)
    if not status:
        click.echo(f"  checkpoint: {copy.checkpoint}")
    return status


@backup.command("list")
@click.argument("words", metavar="[[vmi] NAME]", nargs=-1)
@namespace_option
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def list_(words: tuple[str, ...], output: str) -> None:
    """List the backups of an instance, or all."""
    session, name = current(), instance_name(words) if words else ""
    with session.client() as client:
        found = client.backups.backups(name, namespace=asked_namespace() or (name and session.namespace))
    print_copies(found, output)


@backup.command()
@vmi_arguments
@namespace_option
@click.option("--name", "backup_name", required=True, help="Name of the backup.")
def end(name: str, backup_name: str) -> int:
    """Say that a backup of the instance NAME was pulled: QEMU serves it no more."""
    session = current()
    with session.client() as client:
        return told(client.backups.end_backup(name, backup_name, namespace=session.namespace))


@backup.command()
@vmi_arguments
@namespace_option
@click.option("--name", "backup_name", required=True, help="Name of the backup.")
def abort(name: str, backup_name: str) -> None:
    """Abort a backup of the instance NAME; its checkpoint and what was written go."""
    session = current()
    with session.client() as client:
        client.backups.end_backup(name, backup_name, abort=True, namespace=session.namespace)
    click.echo(f"backup {backup_name} aborted")


@backup.command()
@click.argument("words", metavar="[[vmi] NAME]", nargs=-1)
@namespace_option
def checkpoints(words: tuple[str, ...]) -> None:
    """List the checkpoints of an instance, or all."""
    session, name = current(), instance_name(words) if words else ""
    with session.client() as client:
        found = client.backups.checkpoints(name, namespace=asked_namespace() or (name and session.namespace))
    rows = [(c.namespace, c.vmi, c.name, c.created, ",".join(c.volumes), c.invalid) for c in found]
    click.echo(table(_CHECKPOINT_COLUMNS, rows))


@backup.command("delete-checkpoint")
@vmi_arguments
@namespace_option
@click.option("--name", "checkpoint", required=True, help="Name of the checkpoint.")
def delete_checkpoint(name: str, checkpoint: str) -> None:
    """Forget a checkpoint of the instance NAME."""
    session = current()
    with session.client() as client:
        client.backups.delete_checkpoint(name, checkpoint, namespace=session.namespace)
    click.echo(f"checkpoint {checkpoint} deleted")
