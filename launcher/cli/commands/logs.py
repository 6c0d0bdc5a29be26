# SPDX-License-Identifier: Apache-2.0
"""``launcherctl logs``."""

from __future__ import annotations

import click

from launcher.cli.resource import vmi_arguments
from launcher.cli.session import current, namespace_option


@click.command()
@vmi_arguments
@namespace_option
@click.option(
    "--tail-bytes", type=click.IntRange(min=1), default=64 * 1024, show_default=True, help="How much at most."
)
def logs(name: str, tail_bytes: int) -> None:
    """Print the end of what the serial console of the instance NAME printed."""
    session = current()
    with session.client() as client:
        data = client.instances.console_log(name, namespace=session.namespace, tail_bytes=tail_bytes)
    click.echo(data, nl=False)
