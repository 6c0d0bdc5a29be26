# SPDX-License-Identifier: Apache-2.0
"""A domain's live XML, as libvirt reports it -> the few facts the agent needs. Pure."""

from __future__ import annotations

import msgspec

from launcher.domain.metadata import NAMESPACE
from launcher.domain.reading import Parsed, attribute, parse, printed, words
from launcher.plan.cpuset import parse_cpuset
from launcher.plan.devices.model import PciAddress

# Prefix that libvirt demands of aliases chosen by users.
ALIAS_PREFIX = "ua-"
AGENT_CHANNEL = "org.qemu.guest_agent.0"
_UNITS = {"b": 1, "bytes": 1, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3, "TiB": 1024**4}


class View(msgspec.Struct, frozen=True, kw_only=True):
    """Base of what is read."""


class DiskView(View, frozen=True, kw_only=True):
    """A disk. ``alias`` has no prefix: for disks of ours it is the name in the manifest.

    ``slice`` are the bytes that the guest sees of a larger source, 0: all of it. ``copy_to`` is where the
    disk is being copied to (empty: nowhere); ``copy_ready`` is ``yes`` when both are the same, and ``pivot``
    or ``abort`` while that ends.
    """

    alias: str
    target: str
    bus: str
    source: str
    type: str
    format: str
    device: str
    readonly: bool
    shareable: bool
    slice: int = 0
    copy_to: str = ""
    copy_ready: str = ""


class InterfaceView(View, frozen=True, kw_only=True):
    """A network interface; ``queues`` 0: libvirt's default. ``link`` is ``up`` or ``down``."""

    alias: str
    mac: str
    target: str
    model: str
    queues: int
    link: str


class CellView(View, frozen=True, kw_only=True):
    """A NUMA cell of the guest, ``memory`` in bytes. libvirt puts vCPUs of no cell into the first."""

    vcpus: frozenset[int]
    memory: int


class MemoryDeviceView(View, frozen=True, kw_only=True):
    """A virtio-mem device, in bytes: of ``size`` at most, ``requested`` are offered to the guest in blocks of
    ``block``, and it has taken ``current``."""

    alias: str
    size: int
    block: int
    requested: int
    current: int = 0
    node: int = 0
    address: PciAddress | None = None


class DomainView(View, frozen=True, kw_only=True):
    """A domain. ``memory`` is in bytes and counts the whole size of memory devices.

    ``vcpus`` are those enabled of ``max_vcpus``; ``vcpu_slots``: they are listed one by one, so that more
    can be plugged. ``pins`` are the pCPUs of each vCPU, ``free_ports`` the root ports that are empty,
    ``machine`` is the board, ``hostdevs`` are aliases of devices of the host.

    ``uid`` and ``instance`` come from our metadata; both are empty for a domain that is not ours.
    ``agent_connected`` None: there is no agent channel or its state is not reported.
    """

    name: str
    uuid: str
    uid: str
    instance: str
    machine: str
    memory: int
    max_memory: int | None
    vcpus: int
    max_vcpus: int
    vcpu_slots: bool
    pins: dict[int, tuple[int, ...]]
    cells: tuple[CellView, ...]
    memory_devices: tuple[MemoryDeviceView, ...]
    free_ports: tuple[int, ...]
    vsock_cid: int | None
    disks: tuple[DiskView, ...]
    interfaces: tuple[InterfaceView, ...]
    agent_connected: bool | None
    hostdevs: tuple[str, ...] = ()

    @property
    def boot_memory(self) -> int:
        """Bytes that the guest booted with."""
        return self.memory - sum(device.size for device in self.memory_devices)

    @property
    def used_memory(self) -> int:
        """Bytes that the guest has or may take now."""
        return self.boot_memory + sum(max(d.requested, d.current) for d in self.memory_devices)


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
        machine=attribute(root, "os/type", "machine") or "",
        memory=_size(root.find("memory")) or 0,
        max_memory=_size(root.find("maxMemory")),
        vcpus=enabled if states else int(current or maximum),
        max_vcpus=maximum,
        vcpu_slots=bool(states),
        pins=_pins(root),
        cells=tuple(map(_cell, root.iterfind("cpu/numa/cell"))),
        memory_devices=tuple(
            _memory_device(node)
            for node in root.iterfind("devices/memory")
            if node.get("model") == "virtio-mem"
        ),
        free_ports=_free_ports(root),
        vsock_cid=int(attribute(root, "devices/vsock/cid", "address") or 0) or None,
        disks=tuple(map(_disk, root.findall("devices/disk"))),
        interfaces=tuple(map(_interface, root.findall("devices/interface"))),
        agent_connected=_agent(root),
        hostdevs=tuple(map(alias_of, root.iterfind("devices/hostdev"))),
    )


def devices_by_alias(xml: str) -> dict[str, str]:
    """Each device of domain XML that has an alias of ours, as XML, by that alias without its prefix.

    Raises:
        InvalidRequest: it is no domain XML.
    """
    root = parse(xml, what="domain XML", tag="domain")
    return {
        alias_of(node): printed(node)
        for node in root.iterfind("devices/*")
        if attribute(node, "alias", "name").startswith(ALIAS_PREFIX)
    }


def alias_of(node: Parsed) -> str:
    """The alias of a device, without the prefix of those we chose."""
    return attribute(node, "alias", "name").removeprefix(ALIAS_PREFIX)


def _disk(disk: Parsed) -> DiskView:
    return DiskView(
        alias=alias_of(disk),
        target=attribute(disk, "target", "dev"),
        bus=attribute(disk, "target", "bus"),
        source=_place(disk.find("source")),
        type=disk.get("type", ""),
        format=attribute(disk, "driver", "type"),
        device=disk.get("device", "disk"),
        readonly=disk.find("readonly") is not None,
        shareable=disk.find("shareable") is not None,
        slice=int(attribute(disk, "source/slices/slice", "size") or 0),
        copy_to=_place(disk.find("mirror[@job='copy']/source")),
        copy_ready=attribute(disk, "mirror[@job='copy']", "ready"),
    )


def _place(source: Parsed | None) -> str:
    names = ("file", "dev", "dir", "name", "volume")
    return (
        next((source.get(name, "") for name in names if source.get(name)), "") if source is not None else ""
    )


def _interface(interface: Parsed) -> InterfaceView:
    return InterfaceView(
        alias=alias_of(interface),
        mac=attribute(interface, "mac", "address"),
        target=attribute(interface, "target", "dev"),
        model=attribute(interface, "model", "type"),
        queues=int(attribute(interface, "driver", "queues") or 0),
        link=attribute(interface, "link", "state") or "up",
    )


def _memory_device(node: Parsed) -> MemoryDeviceView:
    return MemoryDeviceView(
        alias=alias_of(node),
        size=_size(node.find("target/size")) or 0,
        block=_size(node.find("target/block")) or 0,
        requested=_size(node.find("target/requested")) or 0,
        current=_size(node.find("target/current")) or 0,
        node=int(words(node, "target/node") or 0),
        address=_pci_address(node),
    )


def _pci_address(device: Parsed) -> PciAddress | None:
    address = device.find("address")
    if address is None or address.get("type") != "pci":
        return None
    numbers = {name: int(address.get(name) or "0", 0) for name in ("domain", "bus", "slot", "function")}
    return PciAddress(**numbers)


def _free_ports(root: Parsed) -> tuple[int, ...]:
    """Root ports into which something may be plugged, by their numbers as buses."""
    ports = {
        int(controller.get("index") or "0")
        for controller in root.iterfind("devices/controller")
        if controller.get("model") == "pcie-root-port" and attribute(controller, "target", "hotplug") != "off"
    }
    addresses = (_pci_address(device) for device in root.iterfind("devices/*"))
    return tuple(sorted(ports - {address.bus for address in addresses if address is not None}))


def _cell(cell: Parsed) -> CellView:
    memory = int(cell.get("memory") or "0") * _UNITS.get(cell.get("unit", "KiB"), 1024)
    return CellView(vcpus=frozenset(parse_cpuset(cell.get("cpus") or "")), memory=memory)


def _pins(root: Parsed) -> dict[int, tuple[int, ...]]:
    pins = root.iterfind("cputune/vcpupin")
    return {int(pin.get("vcpu") or "0"): parse_cpuset(pin.get("cpuset") or "") for pin in pins}


def _agent(root: Parsed) -> bool | None:
    for target in root.iterfind("devices/channel/target"):
        if target.get("name") == AGENT_CHANNEL and target.get("state") is not None:
            return target.get("state") == "connected"
    return None


def _size(node: Parsed | None) -> int | None:
    if node is None or not node.text:
        return None
    return int(node.text) * _UNITS.get(node.get("unit", "KiB"), 1024)
