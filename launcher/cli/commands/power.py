# SPDX-License-Identifier: Apache-2.0
"""``launcherctl pause`` and ``unpause``."""

from __future__ import annotations

import click

from launcher.cli.resource import vmi_arguments
from launcher.cli.session import current, namespace_option


@click.command()
@vmi_arguments
@namespace_option
def pause(name: str) -> None:
    """Stop the vCPUs of the instance NAME; its memory stays, and it runs on after unpause.

    To hold only its file systems for a copy of its disks, use freeze.
    """
    session = current()
    with session.client() as client:
        client.instances.pause(name, namespace=session.namespace)
    click.echo(f"VMI {name} was scheduled to pause", err=True)


@click.command()
@vmi_arguments
@namespace_option
def unpause(name: str) -> None:
    """Let the paused instance NAME go on."""
    session = current()
    with session.client() as client:
        client.instances.unpause(name, namespace=session.namespace)
    click.echo(f"VMI {name} was scheduled to unpause", err=True)
