# SPDX-License-Identifier: Apache-2.0
"""``launcherctl``: global options, the list of commands, and how every failure ends. Commands load lazily."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Any

import click

import launcher
from launcher.cli import exits
from launcher.cli.session import Session
from launcher.errors import LauncherError

# name: (module, attribute, help in the list). A module is imported when its command runs.
COMMANDS: dict[str, tuple[str, str, str]] = {
    "create": ("launcher.cli.commands.create", "create", "Create an instance or migration from a file."),
    "get": ("launcher.cli.commands.get", "get", "Show instances (vmi) or migrations (vmim)."),
    "describe": ("launcher.cli.commands.describe", "describe", "Show everything about one object."),
    "set": ("launcher.cli.commands.set", "set_", "Change vCPUs and memory of a running instance."),
    "addvolume": ("launcher.cli.commands.volume", "addvolume", "Plug a volume into a running instance."),
    "removevolume": (
        "launcher.cli.commands.volume",
        "removevolume",
        "Unplug a volume from a running instance.",
    ),
    "delete": ("launcher.cli.commands.delete", "delete", "Stop and remove an instance."),
    "pause": ("launcher.cli.commands.power", "pause", "Stop a guest's vCPUs; its memory stays."),
    "unpause": ("launcher.cli.commands.power", "unpause", "Let a paused guest run on."),
    "snapshot": ("launcher.cli.commands.snapshot", "snapshot", "Copy an instance's disks as they are now."),
    "backup": ("launcher.cli.commands.backup", "backup", "Back up an instance, also incrementally."),
    "memory-dump": ("launcher.cli.commands.memory_dump", "memory_dump", "Dump an instance's memory."),
    "freeze": ("launcher.cli.commands.freeze", "freeze", "Hold a guest's disk writes, for a copy."),
    "unfreeze": ("launcher.cli.commands.freeze", "unfreeze", "Let a frozen guest write again."),
    "console": ("launcher.cli.commands.console", "console", "Connect to the serial console."),
    "ssh": ("launcher.cli.commands.ssh", "ssh", "Log in to a guest, by this machine's ssh."),
    "port-forward": ("launcher.cli.commands.port_forward", "port_forward", "Reach TCP ports of a guest."),
    "vnc": ("launcher.cli.commands.vnc", "vnc", "Show a guest's screen, or serve it on a local port."),
    "usbredir": ("launcher.cli.commands.usbredir", "usbredir", "Lend a guest a USB device of this machine."),
    "logs": ("launcher.cli.commands.logs", "logs", "Print what the serial console printed."),
    "xml": ("launcher.cli.commands.xml", "xml", "Print the live domain XML of libvirt."),
    "migrate": ("launcher.cli.commands.migrate", "migrate", "Migrate an instance to another node, live."),
    "migrate-cancel": ("launcher.cli.commands.migrate", "migrate_cancel", "Stop a running migration."),
    "migrate-recover": (
        "launcher.cli.commands.migrate",
        "migrate_recover",
        "Resume an interrupted post-copy.",
    ),
    "migration": (
        "launcher.cli.commands.migration",
        "migration_group",
        "Show, plot and replay migrations.",
    ),
    "drain": ("launcher.cli.commands.drain", "drain", "Move all instances to other nodes, live."),
    "sev": ("launcher.cli.commands.sev", "sev", "Attest a guest whose memory SEV encrypts."),
    "node": ("launcher.cli.commands.node", "node", "Show the node."),
    "validate": ("launcher.cli.commands.validate", "validate", "Check a manifest (needs no agent)."),
    "translate": ("launcher.cli.commands.translate", "translate", "Print the domain XML (needs no agent)."),
    "explain": (
        "launcher.cli.commands.explain",
        "explain",
        "Say what a field does, or where XML comes from.",
    ),
    "plan": ("launcher.cli.commands.plan", "plan", "Print what a node would do (needs no agent)."),
    "lab": ("launcher.lab.cli", "lab_group", "Two nodes on this machine, to play with."),
}


class LazyGroup(click.Group):
    """A group that knows its commands by name and imports one only to run it."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command ``cmd_name``."""
        if cmd_name not in COMMANDS:
            return None
        module, attribute, _ = COMMANDS[cmd_name]
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry[2]) for name, entry in COMMANDS.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[Any]:
        """Complete names without importing."""
        from click.shell_completion import CompletionItem

        return [
            CompletionItem(name, help=entry[2])
            for name, entry in COMMANDS.items()
            if name.startswith(incomplete)
        ]


def _version(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value and not context.resilient_parsing:
        click.echo(f"launcherctl {launcher.__version__}")
        context.exit()


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "-s",
    "--server",
    envvar="LAUNCHER_SERVER",
    default="unix:/run/launcher/launcherd.sock",
    show_default=True,
    help="unix:PATH or ADDRESS:PORT of launcherd.",
)
@click.option("--tls-cert", envvar="LAUNCHER_TLS_CERT", default="", help="Client certificate (PEM).")
@click.option("--tls-key", envvar="LAUNCHER_TLS_KEY", default="", help="Its key (PEM).")
@click.option("--tls-ca", envvar="LAUNCHER_TLS_CA", default="", help="CA of the server (PEM).")
@click.option("--tls-server-name", default="", help="Name in the server's certificate, if not the address.")
@click.option("--timeout", type=click.FloatRange(min=0.1), default=30.0, show_default=True, help="Seconds.")
@click.option("-n", "--namespace", default="default", show_default=True, help="Namespace of objects.")
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_version)
@click.pass_context
def cli(
    context: click.Context,
    server: str,
    tls_cert: str,
    tls_key: str,
    tls_ca: str,
    tls_server_name: str,
    timeout: float,
    namespace: str,
) -> None:
    """Run and migrate virtual machine instances of this node.

    Exit status: 0 done, 1 error, 2 invalid input, 3 not found, 4 refused, 5 unavailable, 130 interrupted.
    """
    context.obj = Session(
        server=server,
        namespace=namespace,
        timeout_s=timeout,
        certificate=tls_cert,
        key=tls_key,
        ca=tls_ca,
        server_name=tls_server_name,
    )


def main(args: list[str] | None = None) -> None:
    """Run ``launcherctl`` and exit with the status that the outcome stands for."""
    if sys.stdout is None:  # closed by the caller (`>&-`), who wants to hear nothing
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115 (as long as the process)
    sys.exit(run(args))


def run(args: list[str] | None = None) -> int:
    """Run ``launcherctl`` with ``args`` (default: the process's) and give the exit status."""
    try:
        result = cli.main(args=args, prog_name="launcherctl", standalone_mode=False)
        return result if isinstance(result, int) else exits.OK
    except LauncherError as error:
        click.echo(exits.explain(error), err=True)
        return exits.exit_status(error)
    except click.exceptions.Exit as ended:
        return ended.exit_code
    except click.ClickException as error:
        click.echo(f"error: {error.format_message()}", err=True)
        if isinstance(error, click.UsageError) and error.ctx is not None:
            click.echo(f"hint: {error.ctx.command_path} --help", err=True)
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        return exits.INTERRUPTED
    except BrokenPipeError:
        # The reader left (`launcherctl get vmi | head`): not ours to complain about.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return exits.OK
    except OSError as error:
        # What was to be written or read here: a full disk, a folder that is not there.
        named = f"{error.filename}: " if error.filename else ""
        click.echo(f"error: {named}{error.strerror or error}", err=True)
        return exits.ERROR


if __name__ == "__main__":
    main()
