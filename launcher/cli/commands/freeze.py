# SPDX-License-Identifier: Apache-2.0
"""``launcherctl freeze`` and ``unfreeze``: for copies that somebody else makes of the guest's storage."""

from __future__ import annotations

import click

from launcher.cli.resource import vmi_arguments
from launcher.cli.session import current, namespace_option

# What KubeVirt's clients ask for.
_UNFREEZE_S = 300


@click.command()
@vmi_arguments
@namespace_option
@click.option(
    "--unfreeze-timeout",
    type=click.IntRange(min=0, max=86400),
    default=_UNFREEZE_S,
    show_default=True,
    help="Thaw after so many seconds at the latest; 0: only when asked to.",
)
def freeze(name: str, unfreeze_timeout: int) -> None:
    """Freeze the file systems of the instance NAME by its guest agent, for a copy of them.

    It runs on, but what writes to a disk waits until unfreeze. To stop its vCPUs, use pause.
    """
    session = current()
    with session.client() as client:
        client.backups.freeze(name, unfreeze_timeout_s=unfreeze_timeout, namespace=session.namespace)
    click.echo(f"VMI {name} is frozen", err=True)


@click.command()
@vmi_arguments
@namespace_option
def unfreeze(name: str) -> None:
    """Let the file systems of the instance NAME be written again."""
    session = current()
    with session.client() as client:
        client.backups.unfreeze(name, namespace=session.namespace)
    click.echo(f"VMI {name} is thawed", err=True)
