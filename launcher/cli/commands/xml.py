# SPDX-License-Identifier: Apache-2.0
"""``launcherctl xml``."""

from __future__ import annotations

import click

from launcher.cli.resource import vmi_arguments
from launcher.cli.session import current, namespace_option


@click.command()
@vmi_arguments
@namespace_option
def xml(name: str) -> None:
    """Print the live domain XML of the instance NAME."""
    session = current()
    with session.client() as client:
        text = client.instances.domain_xml(name, namespace=session.namespace)
    click.echo(text.rstrip("\n"))
