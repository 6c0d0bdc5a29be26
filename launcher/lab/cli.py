# SPDX-License-Identifier: Apache-2.0
"""``launcherctl lab``: the playground's commands. Only words and tables are made here."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import click
import msgspec

import launcher
from launcher.errors import InvalidRequest, NotFound, Violation
from launcher.lab import demo, detached, health
from launcher.lab.state import LabState, NodeState

DEMO_MANIFEST = Path(launcher.__file__).parents[1] / "examples" / "demo.yaml"
_LAB_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,19}")


def _check_name(context: click.Context, parameter: click.Parameter, value: str) -> str:
    """A lab's name is part of a path that must stay short."""
    if not _LAB_NAME.fullmatch(value):
        raise click.BadParameter("1 to 20 lower-case letters, digits and hyphens")
    return value


_name = click.option(
    "--name", callback=_check_name, default=detached.DEFAULT_NAME, show_default=True, help="Which lab."
)
_kvm = click.option("--kvm", is_flag=True, help="Let guests use the machine's KVM (default: emulate them).")


@click.group("lab")
def lab_group() -> None:
    """Nodes on this machine to play with: real libvirtd, QEMU and launcherd, in namespaces. Needs root.

    Labs lie in /run/launcher-lab ($LAUNCHER_LAB_DIR), guest images in ~/.cache/launcher/lab
    ($LAUNCHER_LAB_CACHE). Nothing is made in the machine's own network.
    """


@lab_group.command()
@_name
@click.option("--nodes", default="a,b", show_default=True, help="Names of the nodes.")
@_kvm
def up(name: str, nodes: str, kvm: bool) -> None:
    """Start a lab that runs until `lab down`."""
    found = detached.up(name, [node.strip() for node in nodes.split(",")], kvm=kvm)
    _show([found])
    click.echo("\nTo play with it:")
    for line in demo.hints(found):
        click.echo(f"  {line}")


@lab_group.command()
@_name
def down(name: str) -> None:
    """End a lab: exactly its processes and its folder."""
    click.echo(f"lab {name} is down" if detached.down(name) else f"lab {name} was not up")


@lab_group.command()
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", help="Format.")
def status(output: str) -> None:
    """Show the labs that run, their nodes and how the agents feel."""
    found = detached.running()
    if output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(found)))
    elif found:
        _show(found)
    else:
        click.echo("no lab is up\nhint: launcherctl lab up", err=True)


@lab_group.command(name="exec", context_settings={"ignore_unknown_options": True})
@_name
@click.argument("node")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def execute(name: str, node: str, command: tuple[str, ...]) -> None:
    """Run a program inside NODE, such as `launcherctl lab exec a -- virsh list`."""
    argv = [*_node(detached.find(name), node).namespaces.prefix(), *command]
    sys.stdout.flush()
    os.execvp(argv[0], argv)  # noqa: S606 - the user's own command, as words


@lab_group.command()
@_name
@click.argument("node")
@click.argument("mbit", metavar="MBIT|off")
def rate(name: str, node: str, mbit: str) -> None:
    """Cap what flows to NODE, in Mbit/s."""
    if mbit != "off" and not (mbit.isdigit() and int(mbit) > 0):
        message = "a number of Mbit/s above 0, or off"
        raise InvalidRequest([Violation(field="MBIT", type="FieldValueInvalid", value=mbit, message=message)])
    found = detached.find(name)
    found.rate(_node(found, node), None if mbit == "off" else int(mbit))


@lab_group.command(name="demo")
@click.option("--keep", is_flag=True, help="Leave the nodes up (as lab `demo`).")
@click.option(
    "-f",
    "--filename",
    "manifest",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    default=DEMO_MANIFEST,
    help="The instance to create; its guest must print ticks [default: examples/demo.yaml].",
)
@_kvm
def run_demo(keep: bool, manifest: Path, kvm: bool) -> None:
    """Start two nodes, create an instance on one, migrate it live to the other, and report."""
    demo.run(manifest, keep=keep, kvm=kvm)


def _node(lab: LabState, name: str) -> NodeState:
    found = lab.node(name)
    if found is None:
        raise NotFound("node", name, hint=f"lab {lab.name} has {', '.join(node.name for node in lab.nodes)}")
    return found


def _show(labs: list[LabState]) -> None:
    row = "{:<10} {:<8} {:<12} {:>9} {:>9} {:<14} {}"
    click.echo(row.format("LAB", "NODE", "ADDRESS", "LIBVIRTD", "LAUNCHERD", "AGENT", "SERVER"))
    for lab in labs:
        for node in lab.nodes:
            answer = health.check(node.agent_target) or "no answer"
            pids = (node.libvirtd_pid or "-", node.agent_pid or "-")
            click.echo(row.format(lab.name, node.name, node.ip, *pids, answer, node.agent_target))
