# SPDX-License-Identifier: Apache-2.0
"""``launcherctl snapshot``: copies of a running guest's disks as they are at one moment."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from launcher.cli import exits
from launcher.cli.resource import instance_name, vmi_arguments
from launcher.cli.session import asked_namespace, current, namespace_option
from launcher.cli.table import table
from launcher.units import human_bytes

if TYPE_CHECKING:
    from launcher.v1.backups_pb2 import Copy

_COLUMNS = ("NAMESPACE", "VMI", "NAME", "PHASE", "CREATED", "QUIESCED", "MESSAGE")
_LONGEST_S = 86400.0


@click.group(short_help="Copy the disks of a running instance as they are now.")
def snapshot() -> None:
    """Copy the disks of a running instance as they are at one moment.

    With a guest agent the guest's file systems are frozen for that moment. The guest writes on to its own
    images meanwhile; the copies are qcow2 files that need nothing else, and outlive the instance.
    """


@snapshot.command()
@vmi_arguments
@namespace_option
@click.option("--name", "snapshot_name", default="", help="Name of the snapshot (default: with the time).")
@click.option("--volume", "volumes", multiple=True, help="Only this volume; may be repeated.")
@click.option("--skip-quiesce", is_flag=True, help="Do not freeze the guest's file systems.")
@click.option("--no-wait", is_flag=True, help="Do not wait until it is copied.")
def create(name: str, snapshot_name: str, volumes: tuple[str, ...], skip_quiesce: bool, no_wait: bool) -> int:
    """Begin a snapshot of the instance NAME, and wait for it. The exit status is 1 if it fails."""
    session = current()
    with session.client() as client:
        copy = client.backups.create_snapshot(
            name,
            snapshot=snapshot_name,
            volumes=volumes,
            skip_quiesce=skip_quiesce,
            namespace=session.namespace,
        )
        if not no_wait:
            copy = client.backups.wait(copy, timeout_s=_LONGEST_S)
    return told(copy)


@snapshot.command("list")
@click.argument("words", metavar="[[vmi] NAME]", nargs=-1)
@namespace_option
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def list_(words: tuple[str, ...], output: str) -> None:
    """List the snapshots of an instance, or all, also of instances that are gone."""
    session, name = current(), instance_name(words) if words else ""
    with session.client() as client:
        found = client.backups.snapshots(name, namespace=asked_namespace() or (name and session.namespace))
    print_copies(found, output)


@snapshot.command()
@vmi_arguments
@namespace_option
@click.option("--name", "snapshot_name", required=True, help="Name of the snapshot.")
def delete(name: str, snapshot_name: str) -> None:
    """Remove a snapshot of the instance NAME with its files; one under way is aborted."""
    session = current()
    with session.client() as client:
        client.backups.delete_snapshot(name, snapshot_name, namespace=session.namespace)
    click.echo(f"snapshot {snapshot_name} deleted")


def told(copy: Copy) -> int:
    """Say what became of a copy; the exit status."""
    if copy.phase == "Failed":
        click.echo(f"error: {copy.kind} {copy.name} failed: {copy.message}", err=True)
        return exits.ERROR
    quiet = ", ".join(copy.indications)
    click.echo(f"{copy.kind} {copy.name} {copy.phase} ({quiet})")
    for volume in copy.volumes:
        if copy.mode == "pull":
            click.echo(f"  {volume.volume}: NBD export {volume.export} at {copy.endpoint}")
        else:
            click.echo(f"  {volume.volume}: {volume.file}")
    return exits.OK


def print_copies(copies: list[Copy], output: str) -> None:
    """Print them as a table or as JSON."""
    if output == "json":
        from google.protobuf.json_format import MessageToDict

        click.echo(json.dumps([MessageToDict(copy) for copy in copies], indent=4))
        return
    click.echo(table(_COLUMNS, map(_row, copies)))


def _row(copy: Copy) -> tuple[str, ...]:
    message = copy.message
    if copy.phase == "InProgress" and copy.total_bytes:
        message = f"{human_bytes(copy.processed_bytes)} of {human_bytes(copy.total_bytes)}"
    quiet = "GuestAgent" in copy.indications and "QuiesceFailed" not in copy.indications
    return (
        copy.namespace,
        copy.vmi,
        copy.name,
        copy.phase,
        copy.created,
        "True" if quiet else "False",
        message,
    )
