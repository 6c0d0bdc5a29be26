# SPDX-License-Identifier: Apache-2.0
"""``launcherctl node``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from launcher.cli.session import current
from launcher.cli.table import NONE, to_yaml
from launcher.errors import HypervisorUnavailable

if TYPE_CHECKING:
    from launcher.v1.node_pb2 import Node


@click.group(invoke_without_command=True)
@click.option("-o", "--output", type=click.Choice(["text", "yaml", "json"]), default="text")
@click.pass_context
def node(context: click.Context, output: str) -> None:
    """Show the node: versions, connection to libvirt, peers, counts."""
    if context.invoked_subcommand is not None:
        return
    with current().client() as client:
        found = client.node()
    if output == "text":
        click.echo("\n".join(_lines(found)))
    else:
        _print(_plain(found), output)


@node.command()
@click.option("-o", "--output", type=click.Choice(["yaml", "json"]), default="yaml", show_default=True)
def facts(output: str) -> None:
    """Show all that the agent knows of its host: what guests can have here.

    Versions, KVM and why not, CPUs and their cells, pools of huge pages, machine types, CPU models, devices,
    firmware. They are read when asked for; see docs/host.md.
    """
    with current().client() as client:
        found = client.node()
    if not found.facts.fields:
        raise HypervisorUnavailable(f"there are no facts without libvirt: {found.libvirt_reason}")
    _print(_by_name(_plain(found)["facts"]), output)


def _by_name(value: Any) -> Any:
    """A protobuf map keeps no order: the same facts are always printed alike."""
    if isinstance(value, dict):
        return {key: _by_name(value[key]) for key in sorted(value)}
    return [_by_name(item) for item in value] if isinstance(value, list) else value


def _print(value: dict[str, Any], output: str) -> None:
    click.echo(json.dumps(value, indent=4, ensure_ascii=False) if output == "json" else to_yaml(value))


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
