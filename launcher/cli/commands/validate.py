# SPDX-License-Identifier: Apache-2.0
"""``launcherctl validate``."""

from __future__ import annotations

import json

import click

from launcher.cli import exits
from launcher.cli.assumed import arch_option
from launcher.cli.checked import load_checked
from launcher.cli.session import file_option
from launcher.errors import InvalidSpec, Violation


@click.command(short_help="Check a manifest (needs no agent).")
@file_option
@arch_option
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text")
def validate(file: str, output: str, architecture: str) -> int:
    """Check a manifest against the schema and all rules; needs no agent.

    Exit status 0: valid. 2: not; every error is printed, as FILE:LINE:COLUMN: PATH: MESSAGE on standard
    error, or with -o json as a list of objects with field, type, value and message on standard output.
    """
    violations: tuple[Violation, ...] = ()
    hint = ""
    try:
        load_checked(file, architecture)
    except InvalidSpec as error:
        violations, hint = error.violations, error.hint
    if output == "json":
        click.echo(json.dumps([_plain(v) for v in violations], indent=2, ensure_ascii=False))
    elif violations:
        click.echo("\n".join(exits.violation_lines(violations, file=file)), err=True)
        if hint:
            click.echo(f"hint: {hint}", err=True)
    else:
        click.echo(f"{file}: valid", err=True)
    return exits.INVALID if violations else exits.OK


def _plain(violation: Violation) -> dict[str, str]:
    return {
        "field": violation.field,
        "type": violation.type,
        "value": violation.value,
        "message": violation.message,
    }
