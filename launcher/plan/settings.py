# SPDX-License-Identifier: Apache-2.0
"""What the operator of a node decides for all instances, as far as planning needs it. Plain data."""

from __future__ import annotations

from typing import Literal

import msgspec


class BridgedNetwork(msgspec.Struct, frozen=True, kw_only=True):
    """A network that is a bridge of the node. ``mtu`` 0: the bridge's, and the guest is not told.

    ``vlan`` 0: the bridge's own. ``guard`` drops frames of another MAC than the guest's, and what only
    routers and DHCP servers say.
    """

    bridge: str
    mtu: int = 0
    vlan: int = 0
    guard: bool = False


class FunctionNetwork(msgspec.Struct, frozen=True, kw_only=True):
    """A network whose interfaces are virtual functions of a card: its ``link``, and the VLAN that they are
    put into (0: none)."""

    link: str
    vlan: int = 0


class Binding(msgspec.Struct, frozen=True, kw_only=True):
    """A binding plugin of the node; docs/network.md tells what each ``attachment`` is. ``link`` and ``mode``
    are macvtap's, ``socket`` is vhost-user's, ``program`` edits the domain's XML within ``timeout_s``."""

    attachment: Literal["", "tap", "managed-tap", "macvtap", "vhost-user"] = ""
    link: str = ""
    mode: str = "bridge"
    socket: str = ""
    program: tuple[str, ...] = ()
    timeout_s: float = 10.0
    migrate: bool = False


class NetworkSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Networks of the node. ``pools`` (ADDRESS/PREFIX, at most one of each family) are where outer addresses
    of masqueraded guests come from; the first host of each is the node's own.

    ``mtu`` is that of masquerade (0: the kernel's, and the guest is not told), ``guard`` keeps such a guest
    to its own MAC and addresses. ``nameservers`` and ``search`` are told to guests (empty: what the node
    uses itself). ``node_ports`` are the first and last port of the node that guests may have (None: none).
    ``bridges`` are the multus networks by ``[namespace/]name``, ``cards`` those that are cards with virtual
    functions, ``bindings`` the plugins.
    """

    pools: tuple[str, ...] = ("100.64.0.0/16", "fd64:6c61:756e::/64")
    mtu: int = 0
    guard: bool = True
    nameservers: tuple[str, ...] = ()
    search: tuple[str, ...] = ()
    bridges: dict[str, BridgedNetwork] = {}
    cards: dict[str, FunctionNetwork] = {}
    bindings: dict[str, Binding] = {}
    node_ports: tuple[int, int] | None = None


class PlanSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of planning; the defaults are those of a node without a configuration file.

    ``live_update`` keeps slots for CPU and memory hotplug (``maxSockets``, ``maxGuest``).
    ``dedicated_cpus`` are for guests with dedicated CPUs only; ``confine`` keeps all threads of such a guest
    on its own CPUs. ``balloon_stats_period_s`` 0 turns balloon statistics off. ``serial_log`` keeps a log of
    the console. ``pod_bridge`` is where bridge bindings of the pod network attach.
    ``swtpm_dir`` is where libvirt keeps the state of TPMs, in directories named by UUID.
    ``machines`` are versioned machines by alias, for guests that start here. ``rescue_monitor`` gives QEMU a
    monitor beside libvirt's.
    """

    state_dir: str = "/var/lib/launcher"
    run_dir: str = "/run/launcher"
    allow_emulation: bool = False
    live_update: bool = True
    max_hotplug_ratio: int = 4
    max_cpu_sockets: int = 0
    dedicated_cpus: tuple[int, ...] = ()
    confine: bool = False
    balloon_stats_period_s: int = 10
    free_page_reporting: bool = True
    serial_log: bool = True
    pod_bridge: str = ""
    swtpm_dir: str = "/var/lib/libvirt/swtpm"
    machines: dict[str, str] = {}
    rescue_monitor: bool = False
    network: NetworkSettings = NetworkSettings()
    smbios_manufacturer: str = "launcher"
    smbios_product: str = "launcher"
    smbios_family: str = "Virtual Machine"
    smbios_version: str = ""
    smbios_sku: str = ""
