# SPDX-License-Identifier: Apache-2.0
"""``launcherctl create``: manifests to the agent, with what they need beside them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from launcher.cli import exits, table
from launcher.cli.claims import claim_binding
from launcher.cli.documents import Document, keyed_data, read, split, token_account
from launcher.cli.session import asked_namespace, current, file_option, namespace_option
from launcher.errors import InvalidRequest, InvalidSpec, Violation

if TYPE_CHECKING:
    from launcher.cli.client import Client, Object
    from launcher.v1.types_pb2 import Companions


@click.command(short_help="Create an instance or migration from a file.")
@file_option
@namespace_option
@click.option("--secret", "secrets", metavar="FILE", multiple=True, help="A Secret manifest it refers to.")
@click.option("--config-map", "config_maps", metavar="FILE", multiple=True, help="A ConfigMap manifest.")
@click.option(
    "--claim",
    "claims",
    metavar="NAME=PATH[,block][,shared][,preallocated][,capacity=10Gi]",
    multiple=True,
    help="Where a PersistentVolumeClaim or DataVolume lies on the node.",
)
@click.option(
    "--attachment",
    "attachments",
    metavar="NETWORK=NETNS:LINK|PCI[,vlan=N]",
    multiple=True,
    help="A link made for an interface, in a namespace such as /run/netns/NAME; for sriov a function.",
)
@click.option("--to", "target", metavar="NODE", help="For a migration: the node to go to.")
@click.option("--dry-run", is_flag=True, help="Only let the agent check an instance.")
@click.option("-o", "--output", type=click.Choice(["yaml", "json", "name"]), help="Print what was created.")
def create(
    file: str,
    secrets: Sequence[str],
    config_maps: Sequence[str],
    claims: Sequence[str],
    attachments: Sequence[str],
    target: str | None,
    dry_run: bool,
    output: str | None,
) -> int:
    """Create an instance or migration from a file.

    The file may hold Secrets and ConfigMaps beside the instance; they go along with it and are not kept
    otherwise. A Secret of type kubernetes.io/service-account-token stands for its service account, too.
    """
    documents = split(read(file))
    asked = [document for document in documents if document.kind not in ("Secret", "ConfigMap")]
    beside = [document for document in documents if document.kind in ("Secret", "ConfigMap")]
    beside += [Document(kind="Secret", text=read(path)) for path in secrets]
    beside += [Document(kind="ConfigMap", text=read(path)) for path in config_maps]
    companions = _companions(beside, claims)
    for text in attachments:
        _attach(companions, text)
    session = current()
    with session.client() as client:
        for document in asked:
            try:
                if document.kind == "VirtualMachineInstanceMigration":
                    created = _migration(client, document, target, asked_namespace())
                else:
                    created = client.instances.create(
                        document.text, companions, namespace=asked_namespace(), dry_run=dry_run
                    )
            except InvalidSpec as error:
                click.echo(exits.explain(error, file=file), err=True)
                return exits.INVALID
            _report(created, output, "created (dry run)" if dry_run else "created")
    return exits.OK


def _migration(client: Client, document: Document, target: str | None, namespace: str) -> Object:
    # Without --to the manifest says where: addedNodeSelector, sendTo, receive; or only volumes move.
    return client.migrations.create(document.text, target=target or "", namespace=namespace)


def _report(created: Object, output: str | None, done: str) -> None:
    if output is not None:
        click.echo(table.documents([created], output, single=True))
    else:
        click.echo(f"{table.resource(created)}/{table.name(created)} {done}")


def _companions(documents: Sequence[Document], claims: Sequence[str]) -> Companions:
    from launcher.v1.types_pb2 import Companions

    companions = Companions(claims=[claim_binding(text) for text in claims])
    for document in documents:
        name, data = keyed_data(document.text, document.kind)
        account = token_account(document.text) if document.kind == "Secret" else ""
        if account:
            companions.service_accounts[account].data.update(data)
        kept = companions.secrets if document.kind == "Secret" else companions.config_maps
        kept[name].data.update(data)
    return companions


def _attach(companions: Companions, text: str) -> None:
    """Read ``NETWORK=NETNS:LINK`` or ``NETWORK=PCI[,vlan=N]``; raises InvalidRequest."""
    name, _, rest = text.partition("=")
    if name and re.match(r"[0-9a-f]{4}:", rest):
        device, _, vlan = rest.partition(",vlan=")
        if not re.fullmatch(r"[0-9]{0,4}", vlan):
            raise _invalid(text, "vlan must be a number", option="--attachment")
        companions.attachments[name].device = device
        companions.attachments[name].vlan = int(vlan or 0)
        return
    path, _, link = rest.rpartition(":")
    if not name or not path.startswith("/") or not link:
        message = "must be NETWORK=NETNS:LINK with an absolute path, or NETWORK=PCI[,vlan=N]"
        raise _invalid(text, message, option="--attachment")
    companions.attachments[name].namespace = path
    companions.attachments[name].interface = link


def _invalid(value: str, message: str, *, option: str) -> InvalidRequest:
    return InvalidRequest([Violation(field=option, type="FieldValueInvalid", value=value, message=message)])
