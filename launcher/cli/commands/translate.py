# SPDX-License-Identifier: Apache-2.0
"""``launcherctl translate``."""

from __future__ import annotations

from typing import Any

import click

from launcher.cli import exits
from launcher.cli.assumed import assumed, host_options
from launcher.cli.checked import made_of
from launcher.cli.session import file_option


@click.command(short_help="Print the domain XML (needs no agent).")
@file_option
@host_options
def translate(file: str, **host: Any) -> int:
    """Print the domain XML that a node would make of a manifest; needs no agent and touches nothing.

    Without capabilities it assumes a host that has KVM and can do all that is asked. Errors go to standard
    error, all of them; exit status 2 then.
    """
    from launcher.domain.translate import translate as to_xml

    text = made_of(file, lambda vmi: to_xml(vmi, **assumed(**host)), architecture=host["architecture"])
    if text is None:
        return exits.INVALID
    click.echo(text.rstrip("\n"))
    return exits.OK
