# SPDX-License-Identifier: Apache-2.0
"""``launcherctl explain``."""

from __future__ import annotations

import json
from typing import Any

import click

from launcher.cli import exits
from launcher.cli.assumed import assumed, host_options
from launcher.cli.checked import made_of
from launcher.errors import InvalidRequest, Violation

# What may stand before a path, to name another kind than an instance.
_KINDS = {
    "vmi": "VirtualMachineInstance",
    "vmim": "VirtualMachineInstanceMigration",
    "migrationpolicy": "MigrationPolicy",
}


@click.command(short_help="Say what a field does, or where a domain comes from (needs no agent).")
@click.argument("path", required=False)
@click.option(
    "-f", "--filename", "file", type=click.Path(allow_dash=True), help="Manifest; - reads standard input."
)
@click.option("--defaults", is_flag=True, help="With -f: show, too, what the defaults filled in.")
@click.option(
    "--overhead", is_flag=True, help="With -f: show the memory that the guest costs beside its own."
)
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@host_options
def explain(
    path: str | None, file: str | None, defaults: bool, overhead: bool, output: str, **host: Any
) -> int:
    """Say what the field PATH does, such as spec.domain.cpu.realtime, or where a domain comes from.

    PATH is one of an instance, or with vmim. or migrationpolicy. before it of a migration or a policy; list
    positions may be left out. With -f the domain XML of a manifest is printed, and beside each element the
    field, default, setting or fact of the host that it comes from, then the fields that have no effect here;
    with --overhead it is the node's memory that the guest takes beside its own, term by term.
    The host is assumed as for translate.
    """
    if (path is None) == (file is None):
        raise click.UsageError("name a field, such as spec.domain.cpu, or a manifest with -f")
    if path is not None:
        return _field(path, output)
    if overhead:
        return _overhead(file or "", output, host=host)
    return _manifest(file or "", output, defaults=defaults, host=host)


def _field(path: str, output: str) -> int:
    from launcher.explain.page import page
    from launcher.explain.schema import find, spec_of

    first, _, rest = path.partition(".")
    kind = _KINDS.get(first.lower())
    field = find(spec_of(kind or "VirtualMachineInstance"), rest if kind else path)
    if field is None:
        raise _unknown(path, kind, rest if kind else path)
    found = page(field, kind or "VirtualMachineInstance")
    click.echo(_json(found.as_data()) if output == "json" else found.as_text())
    return exits.OK


def _unknown(path: str, kind: str | None, written: str) -> InvalidRequest:
    from launcher.explain.schema import nearest, spec_of

    near = nearest(spec_of(kind or "VirtualMachineInstance"), written)
    message = f"there is no such field; {near.path} has {', '.join(child.name for child in near.children)}"
    if not near.children:
        message = f"there is no such field; {near.path} has no fields"
    return InvalidRequest([Violation(field=path, type="FieldValueNotFound", message=message)])


def _manifest(file: str, output: str, *, defaults: bool, host: dict[str, Any]) -> int:
    from launcher.domain.translate import assume
    from launcher.explain.provenance import provenance
    from launcher.explain.report import as_data, as_text
    from launcher.explain.translation import node_translator

    found = made_of(
        file,
        lambda vmi: provenance(vmi, node_translator(vmi, assume(vmi, **assumed(**host)))),
        architecture=host["architecture"],
    )
    if found is None:
        return exits.INVALID
    if output == "json":
        click.echo(_json(as_data(found, defaults=defaults)))
    else:
        click.echo(as_text(found, defaults=defaults))
    return exits.OK


def _overhead(file: str, output: str, *, host: dict[str, Any]) -> int:
    from launcher.domain.translate import translate_plan
    from launcher.plan.overhead import added_overhead, memory_overhead
    from launcher.units import human_bytes

    found = made_of(
        file,
        lambda vmi: memory_overhead(translate_plan(vmi, **assumed(**host)), added=added_overhead(vmi)),
        architecture=host["architecture"],
    )
    if found is None:
        return exits.INVALID
    if output == "json":
        terms = [{"what": term.what, "bytes": term.size} for term in found.terms]
        click.echo(_json({"bytes": found.total, "terms": terms}))
        return exits.OK
    for size, what in (*((term.size, term.what) for term in found.terms), (found.total, "in all")):
        click.echo(f"{human_bytes(size):>10}  {what}")
    return exits.OK


def _json(data: Any) -> str:
    return json.dumps(data, indent=2, ensure_ascii=False)
