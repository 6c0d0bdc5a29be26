# SPDX-License-Identifier: Apache-2.0
"""``launcherctl describe``: everything about one object, for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from textwrap import indent
from typing import TYPE_CHECKING, Any

import click

from launcher.cli import table
from launcher.cli.progress import numbers, report_lines
from launcher.cli.resource import INSTANCE, resource
from launcher.cli.session import current, namespace_option
from launcher.errors import LauncherError

if TYPE_CHECKING:
    from launcher.cli.client import Client

Object = Mapping[str, Any]

CONDITIONS = ("type", "status", "reason", "message")
INTERFACES = ("name", "interfaceName", "mac", "ipAddress", "linkState", "infoSource")
TRAFFIC = {
    "interface": "interface",
    "rxBytes": "rx_bytes",
    "rxPackets": "rx_packets",
    "rxErrors": "rx_errors",
    "rxDropped": "rx_dropped",
    "txBytes": "tx_bytes",
    "txPackets": "tx_packets",
    "txErrors": "tx_errors",
    "txDropped": "tx_dropped",
}
VOLUMES = ("name", "target", "phase", "size")
PHASES = ("phase", "phaseTransitionTimestamp")


@click.command(short_help="Show everything about one object.")
@click.argument("words", metavar="vmi|vmim NAME", nargs=-1, required=True)
@namespace_option
def describe(words: tuple[str, ...]) -> None:
    """Show everything about the instance (vmi) or migration (vmim) NAME."""
    kind, name = resource(words)
    if name is None:
        raise click.UsageError("name one object: vmi NAME or vmim NAME")
    session = current()
    with session.client() as client:
        if kind == INSTANCE:
            found_one = client.instances.get(name, namespace=session.namespace)
            lines = list(_instance(found_one, _traffic(client, name, session.namespace)))
        else:
            from launcher.rpc.struct import to_plain

            found = client.migrations.get(name, namespace=session.namespace)
            lines = list(_migration(to_plain(found.object), numbers(found).strip()))
            lines += report_lines(found.report) if found.HasField("report") else []
    click.echo("\n".join(lines))


def _traffic(client: Client, name: str, namespace: str) -> list[Object]:
    """Rows of counters; none where the agent is older, or libvirt away: all else is worth showing."""
    try:
        found = client.instances.traffic(name, namespace=namespace)
    except LauncherError:
        return []
    return [{column: getattr(one, attribute) for column, attribute in TRAFFIC.items()} for one in found]


def _instance(vmi: Object, traffic: Sequence[Object]) -> Iterator[str]:
    status = vmi.get("status", {})
    yield from _metadata(vmi)
    yield from _pairs(
        {
            "Phase": status.get("phase", ""),
            "Node": status.get("nodeName", ""),
            "Guest OS": status.get("guestOSInfo", {}).get("prettyName", ""),
            "Machine": status.get("machine", {}).get("type", ""),
        }
    )
    yield from _section("Conditions", status.get("conditions", ()), CONDITIONS)
    yield from _section("Interfaces", status.get("interfaces", ()), INTERFACES)
    yield from _section("Traffic", traffic, tuple(TRAFFIC))
    yield from _section("Volumes", status.get("volumeStatus", ()), VOLUMES)
    yield from _section("Phases", status.get("phaseTransitionTimestamps", ()), PHASES)
    yield from _block("Migration", status.get("migrationState"))
    yield from _block("Spec", vmi.get("spec"))


def _migration(vmim: Object, progress: str) -> Iterator[str]:
    status = vmim.get("status", {})
    yield from _metadata(vmim)
    yield from _pairs(
        {
            "VMI": vmim.get("spec", {}).get("vmiName", ""),
            "Phase": status.get("phase", ""),
            "Progress": progress,
        }
    )
    yield from _section("Conditions", status.get("conditions", ()), CONDITIONS)
    yield from _section("Phases", status.get("phaseTransitionTimestamps", ()), PHASES)
    yield from _block("State", status.get("migrationState"))


def _metadata(item: Object) -> Iterator[str]:
    metadata = item.get("metadata", {})
    yield from _pairs(
        {
            "Name": table.name(item),
            "Namespace": table.namespace(item),
            "UID": metadata.get("uid", ""),
            "Created": metadata.get("creationTimestamp", ""),
        }
    )
    yield from _block("Labels", metadata.get("labels"))
    yield from _block("Annotations", metadata.get("annotations"))


def _pairs(pairs: Mapping[str, str]) -> Iterator[str]:
    yield from (f"{key + ':':<14}{value}" for key, value in pairs.items() if value)


def _section(title: str, rows: Sequence[Object], columns: Sequence[str]) -> Iterator[str]:
    """A table of the columns in which anything stands."""
    used = [column for column in columns if any(column in row for row in rows)]
    if used:
        heads = [column[0].upper() + column[1:] for column in used]
        cells = [[str(row.get(column, "")) for column in used] for row in rows]
        yield f"{title}:"
        yield indent(table.table(heads, cells), "  ")


def _block(title: str, value: object) -> Iterator[str]:
    if value:
        yield f"{title}:"
        yield indent(table.to_yaml(value), "  ")
