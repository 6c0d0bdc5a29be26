# SPDX-License-Identifier: Apache-2.0
"""A source's migratable domain XML -> the XML for its destination, by an ordered list of small transforms.

Pure. What a guest can see stays as it is; only names and places on the host are exchanged.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from launcher.domain.block_copy import source_element
from launcher.domain.commandline import FILE, NAMESPACE, SOCKET
from launcher.domain.cputune import cputune_element
from launcher.domain.devices.hostdev import hostdev_source
from launcher.domain.element import E, Element, cpu_list
from launcher.domain.numatune import numatune_element
from launcher.domain.read import alias_of
from launcher.domain.reading import Parsed, grafted, parse, printed
from launcher.plan.devices.hostdev import is_function
from launcher.plan.devices.model import DiskPlan, HostdevPlan
from launcher.plan.model import CPUTune, NumaTune

# Attributes of devices that hold paths on the host.
_PATH_ATTRIBUTES = ("file", "path", "socket", "dev", "dir")
_PATH_TEXTS = ("os/loader", "os/nvram", "os/kernel", "os/initrd", "os/acpi/table")


class NewSource(msgspec.Struct, frozen=True, kw_only=True):
    """What a disk that is copied elsewhere is made of there. ``size`` are the bytes of a larger device that
    its guest goes on to see; 0: all of it."""

    disk: DiskPlan
    size: int = 0


class Destination(msgspec.Struct, frozen=True, kw_only=True):
    """What the destination calls things.

    ``taps`` gives tap devices by interface name (its alias without prefix); ``paths`` replaces path prefixes,
    first match wins; ``cputune`` and ``numatune`` are those of the destination's own plan, None for a
    guest without any; ``cpuset`` are the pCPUs of what has no pin (empty: all), ``vsock_cid`` the guest's
    address there (None: it stays). ``sources`` are those of disks that are copied to other claims, by volume,
    ``hostdevs`` the destination's devices.
    """

    taps: dict[str, str] = {}
    paths: tuple[tuple[str, str], ...] = ()
    cputune: CPUTune | None = None
    numatune: NumaTune | None = None
    cpuset: tuple[int, ...] = ()
    vsock_cid: int | None = None
    sources: dict[str, NewSource] = {}
    hostdevs: tuple[HostdevPlan, ...] = ()


Transform = Callable[[Parsed, Destination], None]


def retarget(xml: str, destination: Destination) -> str:
    """Domain XML for ``destination``.

    Raises:
        InvalidRequest: ``xml`` is no domain XML.
    """
    root = parse(xml, what="domain XML", tag="domain")
    for transform in TRANSFORMS:
        transform(root, destination)
    return printed(root)


def rename_taps(root: Parsed, destination: Destination) -> None:
    """Each interface gets the destination's tap device."""
    for interface in root.iterfind("devices/interface"):
        tap = destination.taps.get(alias_of(interface))
        target = interface.find("target")
        if tap is None:
            continue
        if target is None:
            interface.append(grafted(E("target", dev=tap, managed="no")))
        else:
            target.set("dev", tap)


def move_paths(root: Parsed, destination: Destination) -> None:
    """Sockets, logs, disks and firmware variables lie where the destination keeps them."""
    for node in root.iterfind("devices//*"):
        for name in _PATH_ATTRIBUTES:
            value = node.get(name)
            if value is not None:
                node.set(name, _moved(value, destination))
    for path in _PATH_TEXTS:
        for node in root.iterfind(path):
            if node.text:
                node.text = _moved(node.text, destination)


def replace_sources(root: Parsed, destination: Destination) -> None:
    """Disks that are copied to other claims are files or devices there, and opened as those can be."""
    for disk in root.iterfind("devices/disk"):
        new = destination.sources.get(alias_of(disk))
        if new is not None:
            _replace_source(disk, new)


def move_arguments(root: Parsed, destination: Destination) -> None:
    """So do the files that the firmware is handed, and the socket of a second monitor."""
    for argument in root.iterfind(f"{{{NAMESPACE}}}commandline/{{{NAMESPACE}}}arg"):
        for mark in (FILE, SOCKET):
            name, separator, path = argument.get("value", "").partition(mark)
            if separator:
                argument.set("value", f"{name}{separator}{_moved(path, destination)}")


def replace_pins(root: Parsed, destination: Destination) -> None:
    """The source's pCPUs mean nothing here."""
    _replace(root, "cputune", cputune_element(destination.cputune) if destination.cputune else None)


def replace_cpuset(root: Parsed, destination: Destination) -> None:
    """Nor do the pCPUs of its other threads."""
    vcpu = root.find("vcpu")
    if vcpu is None:
        return
    if "cpuset" in vcpu.attrib:
        del vcpu.attrib["cpuset"]
    if destination.cpuset:
        vcpu.set("cpuset", cpu_list(destination.cpuset))


def replace_vsock_address(root: Parsed, destination: Destination) -> None:
    """An address that another guest of the destination has is no address there."""
    cid = root.find("devices/vsock/cid")
    if cid is not None and destination.vsock_cid is not None:
        cid.set("auto", "no")
        cid.set("address", str(destination.vsock_cid))


def replace_hostdevs(root: Parsed, destination: Destination) -> None:
    """Devices that move keep their names and their seats in the guest, and are the destination's. Those that
    the guest gives back are left out: it gets others when it is there."""
    devices = root.find("devices")
    ours = {device.alias: device for device in destination.hostdevs}
    for node in root.findall("devices/hostdev"):
        device = ours.get(alias_of(node))
        source = node.find("source")
        if device is None or devices is None or source is None:
            continue
        if is_function(device):
            devices.remove(node)
        else:
            node.replace(source, grafted(hostdev_source(device)))


def replace_numa_placement(root: Parsed, destination: Destination) -> None:
    """Neither do its NUMA cells."""
    _replace(root, "numatune", numatune_element(destination.numatune) if destination.numatune else None)


TRANSFORMS: tuple[Transform, ...] = (
    rename_taps,
    move_paths,
    replace_sources,
    move_arguments,
    replace_cpuset,
    replace_pins,
    replace_numa_placement,
    replace_vsock_address,
    replace_hostdevs,
)


def _replace_source(disk: Parsed, new: NewSource) -> None:
    old, driver, source = disk.find("source"), disk.find("driver"), new.disk.source
    if old is None or source is None:
        return
    disk.replace(old, grafted(source_element(source.path, block=source.block, size=new.size)))
    disk.set("type", "block" if source.block else "file")
    if driver is not None:
        chosen = {
            "cache": new.disk.cache,
            "io": new.disk.io,
            "discard": "unmap" if new.disk.discard else None,
        }
        for name, value in chosen.items():
            if name in driver.attrib:
                del driver.attrib[name]
            if value is not None:
                driver.set(name, value)


def _moved(path: str, destination: Destination) -> str:
    for old, new in destination.paths:
        if path == old or path.startswith(f"{old}/"):
            return new + path.removeprefix(old)
    return path


def _replace(root: Parsed, tag: str, new: Element | None) -> None:
    """Put ``new`` where ``tag`` was; drop the old one when there is no new."""
    old = root.find(tag)
    if old is not None and new is not None:
        root.replace(old, grafted(new))
    elif old is not None:
        root.remove(old)
    elif new is not None:
        root.append(grafted(new))
