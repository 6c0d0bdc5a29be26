# SPDX-License-Identifier: Apache-2.0
"""``launcherctl set``: other vCPUs and other memory for an instance that runs."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

import click

from launcher.cli.resource import vmi_arguments
from launcher.cli.session import current, namespace_option
from launcher.errors import HostUnsupported, TimedOut
from launcher.spec.quantity import Quantity

if TYPE_CHECKING:
    from launcher.cli.client import Client, Object

# Conditions of a change under way; False: it was given up.
_CHANGES = ("HotVCPUChange", "HotMemoryChange")


class _Memory(click.ParamType[str]):
    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            return str(Quantity(str(value)))
        except ValueError as error:
            self.fail(str(error), param, ctx)


@click.command("set", short_help="Change vCPUs and memory of a running instance.")
@vmi_arguments
@namespace_option
@click.option(
    "--sockets", type=click.IntRange(min=1), help="CPU sockets, up to maxSockets; none are removed."
)
@click.option(
    "--memory", type=_Memory(), help="Guest memory, such as 4Gi, from what it booted with to maxGuest."
)
@click.option("--wait", is_flag=True, help="Return when the guest has it (at most --timeout).")
def set_(name: str, sockets: int | None, memory: str | None, wait: bool) -> None:
    """Change the number of sockets and the memory of the instance NAME while it runs.

    It returns when the change is accepted; the conditions HotVCPUChange and HotMemoryChange of the instance
    tell how it goes.
    """
    if sockets is None and memory is None:
        raise click.UsageError("nothing to change: give --sockets, --memory or both")
    session = current()
    with session.client() as client:
        vmi = client.instances.get(name, namespace=session.namespace)
        domain = vmi["spec"]["domain"]
        if sockets is not None:
            domain.setdefault("cpu", {})["sockets"] = sockets
        if memory is not None:
            domain.setdefault("memory", {})["guest"] = memory
        client.instances.update(vmi, namespace=session.namespace)
        click.echo(f"virtualmachineinstance.kubevirt.io/{name} changed")
        if wait:
            _until_done(client, name, session.namespace, session.timeout_s)


def _until_done(client: Client, name: str, namespace: str, timeout_s: float) -> None:
    """Wait until no change is under way.

    Raises:
        HostUnsupported: one was given up.
        TimedOut: one still is after ``timeout_s``.
    """
    last = ""
    try:
        with closing(client.instances.watch(namespace=namespace, name=name, timeout_s=timeout_s)) as changes:
            for change in changes:
                conditions = _changes(change.object or {})
                failed = next((c for c in conditions if c.get("status") == "False"), None)
                if failed is not None:
                    raise HostUnsupported("the change", str(failed.get("message", "")))
                if change.type == "DELETED" or (change.object is not None and not conditions):
                    return
                last = "; ".join(str(c.get("message", "")) for c in conditions) or last
    except TimedOut as error:
        raise TimedOut(
            f"{name!r} is not changed after {timeout_s:g} s: {last}",
            hint="the guest may need a driver (virtio_mem), or to put new CPUs online; it goes on",
        ) from error


def _changes(vmi: Object) -> list[dict[str, Any]]:
    conditions = vmi.get("status", {}).get("conditions", ())
    return [condition for condition in conditions if condition.get("type") in _CHANGES]
