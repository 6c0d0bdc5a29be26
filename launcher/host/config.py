# SPDX-License-Identifier: Apache-2.0
"""The agent's configuration: one TOML file, every key typed, unknown keys refused."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

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
    """The local libvirtd and how peers' libvirtd reach it ({address} is the migration address)."""

    uri: str = "qemu:///system"
    migration_uri: str = "qemu+tls://{address}/system"
    call_timeout_s: float = 30.0


class Migration(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Live migration: the address QEMU listens on for incoming ones, its ports, and limits.

    ``tls_dir`` is where QEMU finds its certificates (``migrate_tls_x509_cert_dir`` of qemu.conf); ``rules``
    names what decides about convergence, ``policies_dir`` a folder of MigrationPolicy files. ``options``
    has the names and values of the API's MigrationConfiguration; ``agent.migration_options`` reads it.
    """

    address: str = ""
    port_min: int = 49152
    port_max: int = 49215
    outbound: int = 2
    inbound: int = 2
    tls_dir: str = "/etc/pki/qemu"
    rules: str = "standard"
    policies_dir: str = ""
    options: dict[str, Any] = {}


class Network(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The bridge that taps of the pod network join; empty: they join none."""

    bridge: str = ""


class Cpus(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """pCPUs as lists such as ``0-1,8``. ``reserved`` ones are never dedicated to a guest; ``dedicated`` names
    those that may be (empty: all others), and then keeps guests without dedicated CPUs off them."""

    reserved: str = ""
    dedicated: str = ""


class Memory(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What instances may reserve: ``overcommit_percent`` of the node's memory without huge pages and without
    ``reserved``, a quantity: the host's own, agent and libvirtd included."""

    reserved: str = "256Mi"
    overcommit_percent: int = 100


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All settings with their defaults. ``peers`` maps node names to ``ADDRESS:PORT`` or ``unix:PATH``."""

    node: str = ""
    state_dir: str = "/var/lib/launcher"
    run_dir: str = "/run/launcher"
    allow_emulation: bool = False
    live_update: bool = True
    reconcile_interval_s: float = 30.0
    log_format: str = "auto"
    log_level: str = "info"
    listen: Listen = Listen()
    tls: Tls = Tls()
    libvirt: Libvirt = Libvirt()
    migration: Migration = Migration()
    network: Network = Network()
    cpus: Cpus = Cpus()
    memory: Memory = Memory()
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
