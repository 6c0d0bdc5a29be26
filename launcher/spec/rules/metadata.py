# SPDX-License-Identifier: Apache-2.0
"""Rules of ``metadata``: the names that become a domain's name, a directory and a file name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from launcher.errors import Violation
from launcher.spec.model import ObjectMeta
from launcher.spec.node_ports import NODE_PORTS, wanted_ports
from launcher.spec.rules.checks import (
    A_SUBDOMAIN,
    dns_label,
    dns_subdomain,
    is_qualified_name,
    is_subdomain,
    labels,
)
from launcher.spec.rules.context import Context, Rule
from launcher.spec.rules.finding import invalid, keyed, required

# A domain is called <namespace>_<name>; libvirt makes file names of it, at most 255 bytes long with
# endings such as ".xml.new" and "-swtpm.log".
LONGEST_DOMAIN_NAME: Final = 239
# Kubernetes' limit on all annotations of an object together.
MOST_ANNOTATIONS_BYTES: Final = 256 * 1024
# Characters that are added to a generateName.
GENERATED: Final = 5
SLOT_COUNT: Final = "kubevirt.io/pci-interface-slot-count"

_UID: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,62}[A-Za-z0-9])?")


def object_names(meta: ObjectMeta | None, what: str) -> Iterator[Violation]:
    """Name and namespace of any object of this API; a name yet to be made has a prefix that will do."""
    if meta is None or not (meta.name or meta.generate_name):
        yield required("metadata.name", f"{what} needs a name")
        return
    if meta.name:
        yield from dns_subdomain("metadata.name", meta.name)
    elif not is_subdomain(f"{meta.generate_name}x"):
        yield invalid(
            "metadata.generateName",
            meta.generate_name,
            f"not the start of a name; accepted are {A_SUBDOMAIN}",
        )
    if meta.namespace:
        yield from dns_label("metadata.namespace", meta.namespace)
    yield from labels("metadata.labels", meta.labels)


def names(ctx: Context) -> Iterator[Violation]:
    """The name is a DNS subdomain, the namespace a DNS label, and both together fit into a file name."""
    yield from object_names(ctx.vmi.metadata, "an instance")
    meta = ctx.vmi.metadata
    if meta is None:
        return
    longest = LONGEST_DOMAIN_NAME - len(meta.namespace or "default") - 1
    if len(meta.name or "") > longest:
        yield invalid(
            "metadata.name", meta.name, f"too long for its namespace; accepted are {longest} characters"
        )
    if len(meta.generate_name or "") > longest - GENERATED:
        yield invalid(
            "metadata.generateName", meta.generate_name, f"accepted are {longest - GENERATED} characters"
        )


def uid(ctx: Context) -> Iterator[Violation]:
    """The uid names directories and sockets: a short word without anything that paths could misread."""
    value = ctx.vmi.metadata.uid if ctx.vmi.metadata is not None else None
    if value and _UID.fullmatch(value) is None:
        yield invalid("metadata.uid", value, "accepted are letters, digits, '-', '_' and '.', at most 64")


def annotation_keys(ctx: Context) -> Iterator[Violation]:
    """Annotation keys are qualified names, the whole is bounded, and the ones acted upon make sense."""
    given = ctx.vmi.metadata.annotations if ctx.vmi.metadata is not None else {}
    for key in given:
        if not is_qualified_name(key):
            yield invalid(
                keyed("metadata.annotations", key), key, "not an annotation key; accepted is [prefix/]name"
            )
    if sum(len(key) + len(value) for key, value in given.items()) > MOST_ANNOTATIONS_BYTES:
        yield invalid("metadata.annotations", None, "too large; accepted are 256 KiB in all")
    slots = given.get(SLOT_COUNT)
    if slots is not None and not (slots.isascii() and slots.isdigit() and len(slots) < 4):
        yield invalid(
            keyed("metadata.annotations", SLOT_COUNT), slots, "must be a number of PCI slots, 0 to 999"
        )


def node_ports(ctx: Context) -> Iterator[Violation]:
    """Ports of the node that are asked for can be read, and lead to ports that the guest shows."""
    try:
        wanted_ports(ctx.full)
    except ValueError as error:
        given = ctx.vmi.metadata.annotations.get(NODE_PORTS) if ctx.vmi.metadata is not None else None
        yield invalid(keyed("metadata.annotations", NODE_PORTS), given, str(error))


RULES: tuple[Rule, ...] = (names, uid, annotation_keys, node_ports)
