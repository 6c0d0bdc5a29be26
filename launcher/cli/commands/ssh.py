# SPDX-License-Identifier: Apache-2.0
"""``launcherctl ssh``: this machine's ssh client, led to the guest by ``port-forward --stdio``."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Sequence

import click

from launcher.cli.resource import placed_instance
from launcher.cli.session import Session, current, namespace_option
from launcher.errors import HostUnsupported


@click.command(context_settings={"ignore_unknown_options": False})
@click.argument("target", metavar="[USER@][vmi/]NAME")
@click.argument("command", metavar="[-- COMMAND...]", nargs=-1, type=click.UNPROCESSED)
@click.option("-l", "--username", default="", help="The user, if not before the @.")
@click.option("-i", "--identity-file", default="", help="The private key.")
@click.option(
    "-p", "--port", type=click.IntRange(1, 65535), default=22, show_default=True, help="Of the guest."
)
@click.option(
    "-t", "--local-ssh-opts", "options", multiple=True, help="An option for ssh, such as -oBatchMode=yes."
)
@namespace_option
def ssh(
    target: str,
    command: tuple[str, ...],
    username: str,
    identity_file: str,
    port: int,
    options: tuple[str, ...],
) -> None:
    """Log in to a guest, or run COMMAND there.

    ssh knows the guest by the name vmi.NAME.NAMESPACE, in known_hosts and in its configuration.
    """
    session = current()
    user, at, instance = target.rpartition("@")
    name, namespace = placed_instance(instance)
    program = shutil.which("ssh")
    if program is None:
        raise HostUnsupported("ssh", "there is no ssh client on this machine", hint="install openssh-client")
    words = arguments(
        session,
        name,
        namespace or session.namespace,
        user=user if at else username,
        port=port,
        identity_file=identity_file,
        options=options,
        command=command,
    )
    os.execv(program, ["ssh", *words])  # noqa: S606 - no shell: ssh takes this process's place


def arguments(
    session: Session,
    name: str,
    namespace: str,
    *,
    user: str,
    port: int,
    identity_file: str,
    options: Sequence[str],
    command: Sequence[str],
) -> list[str]:
    """The arguments of ssh."""
    proxy = [sys.executable, "-m", "launcher.cli.main", *session.arguments(), "port-forward", "--stdio"]
    proxy += [f"vmi/{name}/{namespace}", str(port)]
    # ssh expands percent signs before a shell reads the command.
    words = ["-o", f"ProxyCommand={shlex.join(proxy).replace('%', '%%')}"]
    words += ["-l", user] if user else []
    words += ["-i", identity_file] if identity_file else []
    return [*words, *options, f"vmi.{name}.{namespace}", *command]
