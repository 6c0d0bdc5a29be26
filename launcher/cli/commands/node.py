# SPDX-License-Identifier: Apache-2.0
"""``launcherctl node``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from launcher.cli.session import current
from launcher.cli.table import NONE, to_yaml

if TYPE_CHECKING:
    from launcher.v1.node_pb2 import Node


@click.command()
@click.option("-o", "--output", type=click.Choice(["text", "yaml", "json"]), default="text")
def node(output: str) -> None:
    """Show the node: versions, connection to libvirt, peers, counts."""
    with current().client() as client:
        found = client.node()
    if output == "json":
        click.echo(json.dumps(_plain(found), indent=4, ensure_ascii=False))
    elif output == "yaml":
        click.echo(to_yaml(_plain(found)))
    else:
        click.echo("\n".join(_lines(found)))


def _plain(found: Node) -> dict[str, Any]:
    from launcher.rpc.struct import to_plain

    return {
        "name": found.name,
        "version": found.version,
        "libvirtConnected": found.libvirt_connected,
        "libvirtReason": found.libvirt_reason,
        "instances": found.instances,
        "migrations": found.migrations,
        "peers": list(found.peers),
        "facts": to_plain(found.facts),
    }


def _lines(found: Node) -> list[str]:
    libvirt = "connected" if found.libvirt_connected else f"not connected: {found.libvirt_reason}"
    rows = {
        "Name": found.name,
        "Version": found.version,
        "Libvirt": libvirt,
        "Instances": str(found.instances),
        "Migrations": str(found.migrations),
        "Peers": ", ".join(found.peers) or NONE,
    }
    simple = {
        key: value for key, value in _plain(found)["facts"].items() if not isinstance(value, dict | list)
    }
    rows |= {key: str(value) for key, value in simple.items()}
    return [f"{key + ':':<20}{value}" for key, value in rows.items()]
