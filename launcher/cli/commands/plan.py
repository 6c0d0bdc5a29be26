# SPDX-License-Identifier: Apache-2.0
"""``launcherctl plan``."""

from __future__ import annotations

import json
from typing import Any

import click

from launcher.cli import exits, table
from launcher.cli.assumed import assumed, host_options
from launcher.cli.checked import made_of
from launcher.cli.session import file_option


@click.command(short_help="Print what a node would do (needs no agent).")
@file_option
@host_options
@click.option("-o", "--output", type=click.Choice(["yaml", "json"]), default="yaml", show_default=True)
def plan(file: str, output: str, **host: Any) -> int:
    """Print the plan a node would make of a manifest: what it prepares and what the guest gets.

    Needs no agent; the host is assumed as for translate.
    """
    from launcher.domain.translate import translate_plan
    from launcher.plan.model import encode

    planned = made_of(
        file, lambda vmi: translate_plan(vmi, **assumed(**host)), architecture=host["architecture"]
    )
    if planned is None:
        return exits.INVALID
    made = json.loads(encode(planned))
    click.echo(table.to_yaml(made) if output == "yaml" else json.dumps(made, indent=2, ensure_ascii=False))
    return exits.OK
