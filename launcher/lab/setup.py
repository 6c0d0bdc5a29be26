# SPDX-License-Identifier: Apache-2.0
"""The shell script that turns fresh namespaces into a node: mounts, host name, addresses. Text only."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path
from shlex import quote

from launcher.lab import emulator
from launcher.lab.conf import NODE_BRIDGE
from launcher.lab.layout import BINDS, SHARED_MOUNT, SYSTEM_ROOT, NodeLayout
from launcher.lab.switch import NODE_INTERFACE

TCP_RETRIES = 3
"""net.ipv4.tcp_retries2: a cut cable is noticed after 3.5 s; libvirtd would hang for 15 min."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSetup:
    """What the script depends on besides the folder.

    ``system``: the root folder of another release. ``stand_in``: what is seen in QEMU's place.
    """

    name: str
    ip: str
    hosts: Path
    shared: Path
    hugepages: bool
    hide_kvm: bool
    cgroups: bool
    lab: Path
    system: Path | None = None
    stand_in: Path | None = None


def script(layout: NodeLayout, setup: NodeSetup) -> list[str]:
    """The lines, in order; each must succeed."""
    lines = [f"hostname {quote(setup.name)}"]
    for folder, target in BINDS:
        lines += [f"mkdir -p {target}", _bind(layout.root / folder, target)]
    lines += [f"mkdir -p {SHARED_MOUNT}", _bind(setup.shared, SHARED_MOUNT), _bind(setup.hosts, "/etc/hosts")]
    # Nobody inside may ask the machine's services for anything: libvirtd would register guests with machined.
    lines += [
        f"if [ -d {bus} ]; then mount -t tmpfs tmpfs {bus}; fi" for bus in ("/run/dbus", "/run/systemd")
    ]
    lines += _sysfs(layout, cgroups=setup.cgroups)
    if setup.hugepages:
        lines.append(f"mount -t hugetlbfs hugetlbfs {quote(str(layout.hugepages))}")
    if setup.hide_kvm:
        # A regular file on a read-only mount: even root's access(2) for writing fails, so that libvirtd,
        # QEMU and the agent all find KVM absent (an empty device would be found and probed each time).
        lines += [_bind(layout.no_kvm, "/dev/kvm"), "mount -o remount,bind,ro /dev/kvm"]
    if setup.system is not None:
        lines += _system(setup.system, setup.lab)
    if setup.stand_in is not None:
        lines += _stand_in(setup.stand_in, SYSTEM_ROOT if setup.system is not None else "")
    return lines + _network(setup.ip)


def _bind(source: Path, target: str) -> str:
    return f"mount --bind {quote(str(source))} {quote(target)}"


def _sysfs(layout: NodeLayout, *, cgroups: bool) -> list[str]:
    """A fresh sysfs shows this network namespace's links (libvirt and the agent read /sys/class/net)."""
    mount = "mount -t sysfs sysfs /sys"
    if not cgroups:
        return [mount]
    aside = quote(str(layout.root / "cgroup"))
    return [
        f"mount --rbind /sys/fs/cgroup {aside}",
        mount,
        f"mount --rbind {aside} /sys/fs/cgroup",
        f"umount -l {aside}",
    ]


def _system(system: Path, lab: Path) -> list[str]:
    """Another release at SYSTEM_ROOT, with this node's folders, devices and processes where it has its own.

    What is written to it goes to a layer in memory, so that nodes of several labs can share the folder.
    """
    above = str(Path(SYSTEM_ROOT).parent)
    layers = f"lowerdir={quote(str(system))},upperdir={above}/upper,workdir={above}/work"
    lines = [
        f"mkdir -p {above}",
        f"mount -t tmpfs tmpfs {above}",
        f"mkdir {above}/upper {above}/work {SYSTEM_ROOT}",
        f"mount -t overlay overlay -o {layers} {SYSTEM_ROOT}",
    ]
    lines += [f"mount -t tmpfs tmpfs {SYSTEM_ROOT}/{folder}" for folder in ("run", "tmp")]
    seen = ["/dev", "/proc", "/sys", *(target for _, target in BINDS), SHARED_MOUNT, str(lab)]
    for path in seen:
        lines += [
            f"mkdir -p {quote(SYSTEM_ROOT + path)}",
            f"mount --rbind {quote(path)} {quote(SYSTEM_ROOT + path)}",
        ]
    return [*lines, f"touch {SYSTEM_ROOT}/etc/hosts", _bind(Path("/etc/hosts"), f"{SYSTEM_ROOT}/etc/hosts")]


def _stand_in(script: Path, root: str) -> list[str]:
    """QEMU is seen aside, where it finds its files beside it, too, and the script in its place."""
    real, program = root + emulator.REAL, root + emulator.PROGRAM
    folder = Path(real).parent
    return [
        f"mkdir -p {folder}",
        f"ln -s /usr/share /usr/lib {folder.parent}",
        f"touch {real}",
        _bind(Path(program), real),
        _bind(script, program),
    ]


def bridge_mac(ip: str) -> str:
    """The MAC address of the bridge of the node with that address."""
    return ":".join(f"{byte:02x}" for byte in (0x02, 0x00, *IPv4Address(ip).packed))


def _network(ip: str) -> list[str]:
    """The node's address sits on a bridge, so that guests' taps can join the nodes' network.

    The bridge has a MAC address of its own. Else it had the lowest of its ports', now and then that of a tap
    of libvirt's, which is the same on both nodes while a guest moves: neither would hear the other.
    """
    return [
        f"ip link add {NODE_BRIDGE} address {bridge_mac(ip)} type bridge stp_state 0 forward_delay 0",
        f"ip link set {NODE_INTERFACE} master {NODE_BRIDGE} up",
        f"ip addr add {ip}/24 dev {NODE_BRIDGE}",
        f"ip link set {NODE_BRIDGE} up",
        "ip link set lo up",
        f"echo {TCP_RETRIES} > /proc/sys/net/ipv4/tcp_retries2",
        "echo 1 > /proc/sys/net/ipv4/ip_forward",
    ]
