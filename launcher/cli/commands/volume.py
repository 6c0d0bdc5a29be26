# SPDX-License-Identifier: Apache-2.0
"""``launcherctl addvolume`` and ``removevolume``: volumes of an instance that runs."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

import click

from launcher.cli.claims import claim_binding
from launcher.cli.resource import vmi_arguments
from launcher.cli.session import current, namespace_option
from launcher.errors import HostUnsupported, TimedOut

if TYPE_CHECKING:
    from launcher.cli.client import Client, Object
    from launcher.v1.types_pb2 import Companions

_CHANGE = "HotVolumeChange"
_volume_name = click.option("--volume-name", required=True, metavar="N", help="Name of the volume.")
_dry_run = click.option("--dry-run", is_flag=True, help="Only let the agent check it.")
_wait = click.option("--wait", is_flag=True, help="Return when it is done (at most --timeout).")
_persist = click.option(
    "--persist",
    is_flag=True,
    help="For scripts that know virtctl: a change here always stays, with or without.",
)


@click.command(short_help="Plug a volume into a running instance.")
@vmi_arguments
@namespace_option
@_volume_name
@click.option(
    "--claim",
    metavar="NAME[=PATH[,block][,shared][,preallocated][,capacity=10Gi]]",
    help="The PersistentVolumeClaim, and where it lies on the node if the agent does not know.  [default: "
    "the one named like the volume]",
)
@click.option("--disk", "path", metavar="PATH", help="Instead of a claim: an image file of the node.")
@click.option("--empty-disk", metavar="SIZE", help="Instead of a claim: an empty disk, such as 1Gi.")
@click.option("--image", metavar="IMAGE", help="Instead of a claim: a disk out of a container image.")
@click.option(
    "--utility",
    type=click.Choice(["MemoryDump", "Backup", "any"]),
    help="No disk: a claim that the guest never sees, a directory for memory dumps, backups, or both.",
)
@click.option("--disk-type", type=click.Choice(["disk", "lun"]), default="disk", show_default=True)
@click.option("--bus", type=click.Choice(["scsi", "virtio"]), default="scsi", show_default=True)
@click.option("--serial", help="Serial number that the guest reads.  [default: the volume's name]")
@click.option("--cache", type=click.Choice(["none", "writethrough", "writeback"]))
@click.option("--shareable", is_flag=True, help="Other instances may write to it, too.")
@_persist
@_dry_run
@_wait
def addvolume(
    name: str,
    volume_name: str,
    claim: str | None,
    path: str | None,
    empty_disk: str | None,
    image: str | None,
    utility: str | None,
    disk_type: str,
    bus: str,
    serial: str | None,
    cache: str | None,
    shareable: bool,
    persist: bool,
    dry_run: bool,
    wait: bool,
) -> None:
    """Plug a volume as a new disk into the instance NAME while it runs.

    If the instance has an empty CD-ROM drive of the volume's name, it is put in there. With --utility the
    guest gets nothing: the claim is a place for its memory dumps and backups. The command returns
    when the change is accepted; status.volumeStatus of the instance tells how far it is.
    """
    from launcher.v1 import types_pb2

    given = [text for text in (claim, path, empty_disk, image) if text is not None]
    if len(given) > 1:
        raise click.UsageError("give one of --claim, --disk, --empty-disk and --image")
    if utility is not None and (path or empty_disk or image):
        raise click.UsageError("a utility volume is a claim: give --claim")
    companions = types_pb2.Companions()
    if path is not None:
        source: Object = {"hostDisk": {"path": path, "type": "Disk"}}
    elif empty_disk is not None:
        source = {"emptyDisk": {"capacity": empty_disk}}
    elif image is not None:
        source = {"containerDisk": {"image": image}}
    else:
        claim = claim or volume_name
        source = {"persistentVolumeClaim": {"claimName": claim.partition("=")[0]}}
        if "=" in claim:
            companions.claims.append(claim_binding(claim))
    disk: Object = {"name": volume_name, disk_type: {"bus": bus}}
    if disk_type == "disk":
        disk["serial"] = serial or volume_name
    if cache:
        disk["cache"] = cache
    if shareable:
        disk["shareable"] = True
    session = current()
    with session.client() as client:
        if utility is not None:
            entry = {"name": volume_name, "claimName": source["persistentVolumeClaim"]["claimName"]}
            if utility != "any":
                entry["type"] = utility
            _change_utilities(client, name, companions, add=entry, dry_run=dry_run)
            click.echo(_told(name, f"utility volume {volume_name} added", dry_run=dry_run))
            return
        options: Object = {"name": volume_name, "volumeSource": source}
        if not _is_drive(client.instances.get(name, namespace=session.namespace), volume_name):
            options["disk"] = disk
        client.volumes.add(name, options, companions, namespace=session.namespace, dry_run=dry_run)
        _report(client, name, f"volume {volume_name} is being plugged", dry_run=dry_run, wait=wait)


@click.command(short_help="Unplug a volume again.")
@vmi_arguments
@namespace_option
@_volume_name
@_persist
@_dry_run
@_wait
def removevolume(name: str, volume_name: str, persist: bool, dry_run: bool, wait: bool) -> None:
    """Unplug a volume that was plugged while the instance NAME ran, or empty the CD-ROM drive of that name.

    It removes a utility volume, too. What an image file or claim holds stays; an empty disk, and what was
    written over a container image, is gone.
    """
    session = current()
    with session.client() as client:
        if _change_utilities(client, name, remove=volume_name, dry_run=dry_run):
            click.echo(_told(name, f"utility volume {volume_name} removed", dry_run=dry_run))
            return
        client.volumes.remove(name, volume_name, namespace=session.namespace, dry_run=dry_run)
        _report(client, name, f"volume {volume_name} is being unplugged", dry_run=dry_run, wait=wait)


def _is_drive(vmi: Object, volume: str) -> bool:
    disks = vmi["spec"]["domain"].get("devices", {}).get("disks", ())
    return any(disk["name"] == volume and "cdrom" in disk for disk in disks)


def _change_utilities(
    client: Client,
    name: str,
    companions: Companions | None = None,
    *,
    add: Object | None = None,
    remove: str = "",
    dry_run: bool,
) -> bool:
    """Add a utility volume, or remove the one of that name; returns whether there was anything to do."""
    namespace = current().namespace
    vmi = client.instances.get(name, namespace=namespace)
    present = vmi["spec"].get("utilityVolumes", [])
    wanted = [entry for entry in present if entry["name"] != remove] + ([add] if add is not None else [])
    if wanted == present:
        return False
    vmi["spec"]["utilityVolumes"] = wanted
    client.instances.update(vmi, companions, namespace=namespace, dry_run=dry_run)
    return True


def _told(name: str, what: str, *, dry_run: bool) -> str:
    return f"virtualmachineinstance.kubevirt.io/{name}: {what}{' (dry run)' if dry_run else ''}"


def _report(client: Client, name: str, what: str, *, dry_run: bool, wait: bool) -> None:
    click.echo(_told(name, what, dry_run=dry_run))
    if wait and not dry_run:
        session = current()
        _until_done(client, name, session.namespace, session.timeout_s)


def _until_done(client: Client, name: str, namespace: str, timeout_s: float) -> None:
    """Wait until no volume comes or goes any more.

    Raises:
        HostUnsupported: a change was given up.
        TimedOut: one still goes on after ``timeout_s``.
    """
    last = ""
    try:
        with closing(client.instances.watch(namespace=namespace, name=name, timeout_s=timeout_s)) as changes:
            for change in changes:
                if change.type == "DELETED":
                    return
                if change.object is None:
                    continue
                found = _condition(change.object)
                if found is None:
                    return
                last = str(found.get("message", ""))
                if found.get("status") == "False":
                    raise HostUnsupported("the change", last)
    except TimedOut as error:
        raise TimedOut(f"{name!r} is not changed after {timeout_s:g} s: {last}", hint="it goes on") from error


def _condition(vmi: Object) -> dict[str, Any] | None:
    conditions = vmi.get("status", {}).get("conditions", ())
    return next((found for found in conditions if found.get("type") == _CHANGE), None)
