# SPDX-License-Identifier: Apache-2.0
"""``launcherctl memory-dump``: the memory of a running guest as an ELF core, for crash and gdb."""

from __future__ import annotations

import time
from typing import Any

import click

from launcher.cli import exits
from launcher.cli.claims import claim_binding
from launcher.cli.resource import vmi_arguments
from launcher.cli.session import current, namespace_option
from launcher.errors import TimedOut

_POLL_S = 0.5
_LONGEST_S = 86400.0
_COMPLETED = "MemoryDumpCompleted"
_FAILED = "MemoryDumpFailed"


@click.group("memory-dump", short_help="Dump the memory of a running instance.")
def memory_dump() -> None:
    """Dump the memory of a running instance as an ELF core into a claim that is a directory.

    The guest waits while it is written. The claim must have room for its memory and 100 MiB.
    """


@memory_dump.command()
@vmi_arguments
@namespace_option
@click.option(
    "--claim",
    metavar="NAME[=DIRECTORY]",
    default="",
    help="The claim, and where it lies unless that is known (default: that of the memoryDump volume, or "
    "of the only utility volume of type MemoryDump).",
)
@click.option("--volume", metavar="NAME", default="", help="Instead of a claim: a utility volume.")
@click.option("--no-wait", is_flag=True, help="Do not wait until it is written.")
def get(name: str, claim: str, volume: str, no_wait: bool) -> int:
    """Dump the memory of the instance NAME. The exit status is 1 if that fails."""
    session = current()
    binding = claim_binding(claim) if "=" in claim else None
    with session.client() as client:
        vmi = client.backups.dump_memory(
            name,
            claim=binding.claim if binding is not None else claim,
            binding=binding,
            volume=volume,
            namespace=session.namespace,
        )
        end = time.monotonic() + _LONGEST_S
        while not no_wait and _status(vmi).get("phase") not in (_COMPLETED, _FAILED):
            if time.monotonic() >= end:
                raise TimedOut("the dump did not end within a day; it goes on")
            time.sleep(_POLL_S)
            vmi = client.instances.get(name, namespace=session.namespace)
    status = _status(vmi)
    if status.get("phase") == _FAILED:
        click.echo(f"error: memory dump failed: {status.get('message', '')}", err=True)
        return exits.ERROR
    dump = status.get("memoryDumpVolume", {})
    click.echo(f"{status.get('phase', '')}: {dump.get('targetFileName', '')} in {dump.get('claimName', '')}")
    return exits.OK


@memory_dump.command()
@vmi_arguments
@namespace_option
def remove(name: str) -> None:
    """Show the last dump of the instance NAME no more; its file stays in the claim."""
    session = current()
    with session.client() as client:
        client.backups.forget_memory_dump(name, namespace=session.namespace)
    click.echo(f"memory dump of {name} removed from its status")


def _status(vmi: dict[str, Any]) -> dict[str, Any]:
    """The status of the volume that the last dump is in."""
    for volume in vmi.get("status", {}).get("volumeStatus", ()):
        if "targetFileName" in volume.get("memoryDumpVolume", {}):
            found: dict[str, Any] = volume
            return found
    return {}
