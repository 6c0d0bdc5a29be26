# SPDX-License-Identifier: Apache-2.0
"""``launcherctl port-forward``: ports of this machine that lead to ports of a guest."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Final

import click

from launcher.cli.forward import Forwarder, Listener, listen, through_stdio
from launcher.cli.resource import placed_instance
from launcher.cli.session import current, namespace_option

LAST_PORT: Final = 65535


@dataclass(frozen=True, slots=True)
class PortPair:
    """A local port (0: any that is free) and the guest's."""

    local: int
    remote: int


def port_pair(text: str) -> PortPair:
    """``[tcp/][LOCAL]:REMOTE``, or ``REMOTE`` for the same on both sides.

    Raises:
        click.UsageError: it is none of these.
    """
    protocol, slash, ports = text.rpartition("/")
    if slash and protocol.lower() != "tcp":
        raise click.UsageError(f"{text!r}: only tcp can be forwarded, not {protocol}")
    local, colon, remote = ports.rpartition(":")
    number = _port(remote, text)
    return PortPair((_port(local, text) if local else 0) if colon else number, number)


def _port(text: str, whole: str) -> int:
    if text.isascii() and text.isdigit() and 1 <= int(text) <= LAST_PORT:
        return int(text)
    raise click.UsageError(f"{whole!r} is no port: use [LOCAL:]REMOTE with 1 to {LAST_PORT}, or :REMOTE")


@click.command(name="port-forward")
@click.argument("instance", metavar="[vmi/]NAME")
@click.argument("ports", metavar="[LOCAL:]REMOTE...", nargs=-1, required=True)
@click.option(
    "--address",
    "addresses",
    multiple=True,
    default=("localhost",),
    show_default=True,
    help="Where to listen; may be given several times.",
)
@click.option(
    "--stdio", is_flag=True, help="One connection, to the one port, over standard input and output."
)
@namespace_option
def port_forward(instance: str, ports: tuple[str, ...], addresses: tuple[str, ...], stdio: bool) -> None:
    """Forward local ports to TCP ports of a guest, through its node's agent.

    This machine need not be on the node's network, and behind masquerade every port of the guest is reached,
    forwarded or not. LOCAL defaults to REMOTE; ":REMOTE" takes any port that is free. Ctrl+C ends it.
    """
    session = current()
    name, namespace = placed_instance(instance)
    namespace = namespace or session.namespace
    pairs = [port_pair(text) for text in ports]
    if stdio and len(pairs) != 1:
        raise click.UsageError("--stdio forwards one port")
    with session.client() as client:
        if stdio:
            through_stdio(partial(client.streams.port_forward, name, pairs[0].remote, namespace=namespace))
            return
        client.instances.get(name, namespace=namespace)
        listeners = [
            Listener(
                local=local,
                open_stream=partial(client.streams.port_forward, name, pair.remote, namespace=namespace),
                remote=str(pair.remote),
            )
            for pair in pairs
            for address in addresses
            for local in listen(address, pair.local)
        ]
        for listener in listeners:
            host, port = listener.local.getsockname()[:2]
            shown = f"[{host}]" if ":" in host else host
            click.echo(f"Forwarding from {shown}:{port} -> {listener.remote}")
        Forwarder(listeners).run()
