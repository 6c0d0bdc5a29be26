# SPDX-License-Identifier: Apache-2.0
"""A domain's live XML, as libvirt reports it -> the few facts the agent needs. Pure."""

from __future__ import annotations

import msgspec

from launcher.domain.element import Element
from launcher.domain.metadata import NAMESPACE
from launcher.domain.reading import attribute, parse, words

# Prefix that libvirt demands of aliases chosen by users.
ALIAS_PREFIX = "ua-"
AGENT_CHANNEL = "org.qemu.guest_agent.0"
_UNITS = {"b": 1, "bytes": 1, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3, "TiB": 1024**4}


class View(msgspec.Struct, frozen=True, kw_only=True):
    """Base of what is read."""


class DiskView(View, frozen=True, kw_only=True):
    """A disk. ``alias`` has no prefix: for disks of ours it is the name in the manifest."""

    alias: str
    target: str
    bus: str
    source: str
    type: str
    format: str
    device: str
    readonly: bool
    shareable: bool


class InterfaceView(View, frozen=True, kw_only=True):
    """A network interface; ``queues`` 0: libvirt's default. ``link`` is ``up`` or ``down``."""

    alias: str
    mac: str
    target: str
    model: str
    queues: int
    link: str


class DomainView(View, frozen=True, kw_only=True):
    """A domain. ``memory`` is in bytes, ``vcpus`` those enabled of ``max_vcpus``.

    ``uid`` and ``instance`` come from our metadata; both are empty for a domain that is not ours.
    ``agent_connected`` None: there is no agent channel or its state is not reported.
    """

    name: str
    uuid: str
    uid: str
    instance: str
    memory: int
    max_memory: int | None
    vcpus: int
    max_vcpus: int
    disks: tuple[DiskView, ...]
    interfaces: tuple[InterfaceView, ...]
    agent_connected: bool | None


def read_domain(xml: str) -> DomainView:
    """Read domain XML.

    Raises:
        InvalidRequest: it is no domain XML.
    """
    root = parse(xml, what="domain XML", tag="domain")
    maximum = int(words(root, "vcpu") or 1)
    states = root.findall("vcpus/vcpu")
    current = attribute(root, "vcpu", "current")
    enabled = sum(1 for state in states if state.get("enabled") == "yes")
    ours = root.find(f"metadata/{{{NAMESPACE}}}vmi")
    namespace = words(ours, f"{{{NAMESPACE}}}namespace") if ours is not None else ""
    name = words(ours, f"{{{NAMESPACE}}}name") if ours is not None else ""
    return DomainView(
        name=words(root, "name"),
        uuid=words(root, "uuid"),
        uid=words(ours, f"{{{NAMESPACE}}}uid") if ours is not None else "",
        instance=f"{namespace}/{name}" if ours is not None else "",
        memory=_size(root.find("memory")) or 0,
        max_memory=_size(root.find("maxMemory")),
        vcpus=enabled if states else int(current or maximum),
        max_vcpus=maximum,
        disks=tuple(map(_disk, root.findall("devices/disk"))),
        interfaces=tuple(map(_interface, root.findall("devices/interface"))),
        agent_connected=_agent(root),
    )


def alias_of(node: Element) -> str:
    """The alias of a device, without the prefix of those we chose."""
    return attribute(node, "alias", "name").removeprefix(ALIAS_PREFIX)


def _disk(disk: Element) -> DiskView:
    source = disk.find("source")
    names = ("file", "dev", "dir", "name", "volume")
    found = (
        next((source.get(name, "") for name in names if source.get(name)), "") if source is not None else ""
    )
    return DiskView(
        alias=alias_of(disk),
        target=attribute(disk, "target", "dev"),
        bus=attribute(disk, "target", "bus"),
        source=found,
        type=disk.get("type", ""),
        format=attribute(disk, "driver", "type"),
        device=disk.get("device", "disk"),
        readonly=disk.find("readonly") is not None,
        shareable=disk.find("shareable") is not None,
    )


def _interface(interface: Element) -> InterfaceView:
    return InterfaceView(
        alias=alias_of(interface),
        mac=attribute(interface, "mac", "address"),
        target=attribute(interface, "target", "dev"),
        model=attribute(interface, "model", "type"),
        queues=int(attribute(interface, "driver", "queues") or 0),
        link=attribute(interface, "link", "state") or "up",
    )


def _agent(root: Element) -> bool | None:
    for target in root.iterfind("devices/channel/target"):
        if target.get("name") == AGENT_CHANNEL and target.get("state") is not None:
            return target.get("state") == "connected"
    return None


def _size(node: Element | None) -> int | None:
    if node is None or not node.text:
        return None
    return int(node.text) * _UNITS.get(node.get("unit", "KiB"), 1024)
