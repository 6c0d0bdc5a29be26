# SPDX-License-Identifier: Apache-2.0
"""The agent's configuration: one TOML file, every key typed, unknown keys refused."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any, Literal

import msgspec

from launcher.errors import InvalidRequest, Violation


class Listen(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the gRPC API is served. ``tcp`` (``ADDRESS:PORT``) needs the three TLS files."""

    socket: str = "/run/launcher/launcherd.sock"
    socket_mode: int = 0o660
    socket_group: str = ""
    tcp: str = ""
    metrics: str = ""


class Tls(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Mutual TLS for the TCP listener and for calls to peers (PEM files)."""

    certificate: str = ""
    key: str = ""
    ca: str = ""


class Libvirt(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The local libvirtd and how peers' libvirtd reach it ({address} is where the migration comes in).

    ``swtpm_dir`` is where it keeps the state of emulated TPMs, a directory for each domain's UUID.
    """

    uri: str = "qemu:///system"
    migration_uri: str = "qemu+tls://{address}/system"
    call_timeout_s: float = 30.0
    swtpm_dir: str = "/var/lib/libvirt/swtpm"


class Migration(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Live migration: where QEMU listens for incoming ones, its ports, and limits.

    ``address`` is an address of this node, an interface or a network that it is in (looked up for each
    migration), or ``unix:FOLDER``: sockets there, for nodes on one machine. ``networks`` names others by the
    same, for the option ``network``.
    ``tls_dir`` is where QEMU finds its certificates (``migrate_tls_x509_cert_dir`` of qemu.conf); ``rules``
    names what decides about convergence, ``policies_dir`` a folder of MigrationPolicy files.
    ``link_bandwidth`` (a quantity, bytes a second) is what the link carries without a migration's own limit,
    which QEMU lifts for the last part: it makes predicted downtimes right where there is a limit. ``options``
    has the names and values of the API's MigrationConfiguration; ``agent.migration_options`` reads it.
    ``rescue_monitor`` gives guests that start here a QEMU monitor beside libvirt's: by it an interrupted
    post-copy is resumed where libvirt fails. libvirt calls such a guest tainted, and what confines QEMU must
    let it listen in ``run_dir``.
    """

    address: str = ""
    networks: dict[str, str] = {}
    port_min: int = 49152
    port_max: int = 49215
    outbound: int = 2
    inbound: int = 2
    link_bandwidth: str = ""
    tls_dir: str = "/etc/pki/qemu"
    rules: str = "standard"
    policies_dir: str = ""
    rescue_monitor: bool = False
    options: dict[str, Any] = {}


class NodeNetwork(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A network that is a ``bridge`` of this node, or for ``sriov`` a ``card``: the link of one that has
    virtual functions. ``mtu`` 0: the bridge's; ``vlan`` 0: the bridge's own, or none; ``guard`` keeps guests
    of a bridge to their MAC addresses."""

    bridge: str = ""
    card: str = ""
    mtu: int = 0
    vlan: int = 0
    guard: bool = False


class NodeDevices(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Devices of this node that guests may have by one resource name: PCI addresses (bound to a driver of
    VFIO already), UUIDs of mediated devices, or USB ``BUS:DEVICE``. ``migratable``: they move their state to
    another of their kind, by a driver of VFIO's that can."""

    addresses: tuple[str, ...]
    migratable: bool = False


class NodeBinding(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What ``binding: {name: NAME}`` of an interface means on this node.

    ``attachment``: ``tap`` (a tap that somebody else takes up), ``managed-tap`` (a tap on the interface's
    network, without addresses from us), ``macvtap`` (on the ``link``, in a ``mode`` of macvlan's),
    ``vhost-user`` (a ``socket`` of somebody's switch; ``{uid}`` and ``{interface}`` stand for themselves) or
    empty: the domain has no such interface until the ``program`` puts one in. The program gets the instance
    and the domain's XML as JSON, and answers with XML within ``timeout_s``. ``migrate``: a guest with it may
    move to nodes that have the same.
    """

    attachment: Literal["", "tap", "managed-tap", "macvtap", "vhost-user"] = ""
    link: str = ""
    mode: Literal["bridge", "private", "vepa", "passthru"] = "bridge"
    socket: str = ""
    program: tuple[str, ...] = ()
    timeout_s: float = 10.0
    migrate: bool = False


class Network(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Networks of guests.

    ``bridge`` is the bridge that bridge bindings of the pod network join (empty: there is none). ``pool`` and
    ``pool6`` are where the outer addresses of masqueraded guests come from (empty: no such family); they are
    private to the node. ``mtu`` is that of masquerade (0: the kernel's), ``guard`` keeps such guests to their
    own addresses. ``nameservers`` and ``search`` are told to guests (empty: what the node itself uses).
    ``node_ports`` (``FIRST-LAST``) are ports of the node that guests may ask for (empty: none).
    """

    bridge: str = ""
    pool: str = "100.64.0.0/16"
    pool6: str = "fd64:6c61:756e::/64"
    mtu: int = 0
    guard: bool = True
    nameservers: tuple[str, ...] = ()
    search: tuple[str, ...] = ()
    node_ports: str = ""


class Cpus(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """pCPUs as lists such as ``0-1,8``. ``reserved`` ones are never dedicated to a guest; ``dedicated`` names
    those that may be (empty: all others), and then keeps guests without dedicated CPUs off them. ``model`` is
    the CPU model of guests that name none: one that every node of the fleet has lets them move anywhere."""

    reserved: str = ""
    dedicated: str = ""
    model: str = "host-model"


class Memory(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What instances may reserve: ``overcommit_percent`` of the node's memory without huge pages and without
    ``reserved``, a quantity: the host's own, agent and libvirtd included."""

    reserved: str = "256Mi"
    overcommit_percent: int = 100


class Storage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Container images: what the cache keeps of those that nobody uses (empty or 0: all), the largest disk
    file and the largest virtual disk that are taken (all quantities), and registries (``HOST[:PORT]``) that
    are spoken to without TLS or with any certificate."""

    cache_limit: str = "20Gi"
    max_image: str = "128Gi"
    max_virtual_size: str = "16Ti"
    insecure_registries: tuple[str, ...] = ()


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All settings with their defaults. ``peers`` maps node names to ``ADDRESS:PORT`` or ``unix:PATH``,
    ``networks`` the names of multus networks, ``[namespace/]name``, to what they are here, ``bindings`` those
    of binding plugins, ``devices`` resource names to devices, and ``machines`` aliases (``q35``) to the
    versioned machine that guests get on every node of the fleet. ``eviction_strategy`` is that of instances
    that name none, when the node is drained."""

    node: str = ""
    state_dir: str = "/var/lib/launcher"
    run_dir: str = "/run/launcher"
    allow_emulation: bool = False
    live_update: bool = True
    eviction_strategy: str = "LiveMigrateIfPossible"
    reconcile_interval_s: float = 30.0
    log_format: str = "auto"
    log_level: str = "info"
    listen: Listen = Listen()
    tls: Tls = Tls()
    libvirt: Libvirt = Libvirt()
    migration: Migration = Migration()
    network: Network = Network()
    networks: dict[str, NodeNetwork] = {}
    bindings: dict[str, NodeBinding] = {}
    devices: dict[str, NodeDevices] = {}
    cpus: Cpus = Cpus()
    memory: Memory = Memory()
    storage: Storage = Storage()
    machines: dict[str, str] = {}
    peers: dict[str, str] = {}

    @property
    def node_name(self) -> str:
        """The configured name, else the host name."""
        return self.node or socket.gethostname()


def load(path: Path | None) -> Config:
    """Read ``path`` (absent: all defaults).

    Raises:
        InvalidRequest: the file cannot be read or does not fit, naming the key.
    """
    if path is None:
        return Config()
    try:
        return msgspec.toml.decode(path.read_bytes(), type=Config)
    except (OSError, msgspec.DecodeError) as error:
        finding = Violation(field=str(path), type="FieldValueInvalid", message=str(error))
        raise InvalidRequest([finding], hint="see docs/configuration.md") from error
