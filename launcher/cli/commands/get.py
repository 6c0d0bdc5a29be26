# SPDX-License-Identifier: Apache-2.0
"""``launcherctl get``: objects as tables or documents, once or as they change."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from launcher.cli import table
from launcher.cli.resource import INSTANCE, resource
from launcher.cli.session import current, namespace_option

if TYPE_CHECKING:
    from launcher.cli.client import Client

Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """How objects of a kind become rows."""

    columns: tuple[str, ...]
    row: Callable[[Object, datetime], tuple[str, ...]]


@click.command(short_help="Show instances (vmi) or migrations (vmim).")
@click.argument("words", metavar="vmi|vmim [NAME]", nargs=-1, required=True)
@namespace_option
@click.option("-A", "--all-namespaces", is_flag=True, help="Objects of all namespaces.")
@click.option("-o", "--output", type=click.Choice(["wide", "yaml", "json", "name"]), help="Another form.")
@click.option("-w", "--watch", is_flag=True, help="Go on and show every change.")
def get(words: tuple[str, ...], all_namespaces: bool, output: str | None, watch: bool) -> None:
    """Show instances (vmi) or migrations (vmim): all of a namespace, or the one named NAME."""
    kind, name = resource(words)
    if all_namespaces and name is not None:
        raise click.UsageError("a name needs one namespace, not all")
    session = current()
    namespace = "" if all_namespaces else session.namespace
    view = _view(kind, wide=output == "wide", namespaced=all_namespaces)
    with session.client() as client:
        if watch:
            _follow(_changes(client, kind, namespace, name), view, output)
            return
        found = _objects(client, kind, namespace, name)
    if output in ("yaml", "json", "name"):
        click.echo(table.documents(found, output, single=name is not None))
    elif found:
        now = datetime.now(UTC)
        click.echo(table.table(view.columns, [view.row(item, now) for item in found]))
    else:
        where = "" if all_namespaces else f" in {namespace} namespace"
        click.echo(f"No resources found{where}.", err=True)


def _objects(client: Client, kind: str, namespace: str, name: str | None) -> list[Object]:
    if kind == INSTANCE:
        if name is not None:
            return [client.instances.get(name, namespace=namespace)]
        return list(client.instances.list(namespace=namespace))
    from launcher.rpc.struct import to_plain

    if name is not None:
        return [to_plain(client.migrations.get(name, namespace=namespace).object)]
    return [to_plain(item.object) for item in client.migrations.list(namespace=namespace)]


def _changes(client: Client, kind: str, namespace: str, name: str | None) -> Iterator[Object]:
    """The objects as they are and change; raises NotFound when one was named that is not there."""
    if name is not None:
        _objects(client, kind, namespace, name)
    if kind == INSTANCE:
        for change in client.instances.watch(namespace=namespace, name=name or ""):
            if change.object is not None:
                yield change.object
        return
    from launcher.rpc.struct import to_plain

    migrations = (
        (event.type, to_plain(event.migration.object))
        for event in client.migrations.watch_all(namespace=namespace)
        if event.migration is not None
    )
    yield from differing((kind, vmim) for kind, vmim in migrations if name in (None, table.name(vmim)))


def differing(events: Iterable[tuple[str, Object]]) -> Iterator[Object]:
    """The objects of events (type, object) without those that are as they were told last.

    A migration is told with each look at its progress, which is no part of the object.
    """
    told: dict[str, Object] = {}
    for kind, item in events:
        key = f"{table.namespace(item)}/{table.name(item)}"
        if kind == "DELETED":
            told.pop(key, None)
        elif told.get(key) == item:
            continue
        else:
            told[key] = item
        yield item


def _follow(changes: Iterable[Object], view: View, output: str | None) -> None:
    """Print each change when it comes. A table's columns only grow, as kubectl's do."""
    widths = [len(column) for column in view.columns]
    headed = False
    for item in changes:
        if output == "json":
            click.echo(json.dumps(item, indent=4, ensure_ascii=False))
        elif output == "yaml":
            click.echo(f"---\n{table.to_yaml(item)}")
        elif output == "name":
            click.echo(f"{table.resource(item)}/{table.name(item)}")
        else:
            cells = view.row(item, datetime.now(UTC))
            widths = [max(width, len(cell)) for width, cell in zip(widths, cells, strict=True)]
            if not headed:
                click.echo(table.line_of(view.columns, widths))
                headed = True
            click.echo(table.line_of(cells, widths))


def _view(kind: str, *, wide: bool, namespaced: bool) -> View:
    columns, more, cells = (
        (table.INSTANCE_COLUMNS, table.INSTANCE_WIDE, table.instance_row)
        if kind == INSTANCE
        else (table.MIGRATION_COLUMNS, table.MIGRATION_WIDE, table.migration_row)
    )
    shown = (*columns, *more) if wide else columns

    def row(item: Object, now: datetime) -> tuple[str, ...]:
        plain = cells(item, now, wide=wide)
        return (table.namespace(item), *plain) if namespaced else plain

    return View(columns=("NAMESPACE", *shown) if namespaced else shown, row=row)
