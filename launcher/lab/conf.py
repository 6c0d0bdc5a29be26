# SPDX-License-Identifier: Apache-2.0
"""The text of every configuration file of a node. Values in, text out; nothing is written here."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from launcher.host.config import Config, Libvirt, Listen, Memory, Migration, Network, NodeNetwork, Tls
from launcher.lab.layout import NodeLayout
from launcher.lab.pki import qemu_folder

AGENT_PORT = 7443
"""Where an agent serves its peers, inside the lab's network."""

NODE_BRIDGE = "br0"
"""Bridge inside each node: it holds the node's address, its cable and the guests' taps."""

LAB_NETWORK = "lab"
"""The multus network that every node has: its bridge."""


def qemu_conf(layout: NodeLayout, ip: str, *, hugepages: bool, certificates: Path) -> str:
    """/etc/libvirt/qemu.conf. Each key is there because a node without it failed:

    QEMU runs as root without confinement in a container that has neither AppArmor nor udev; files are
    written directly because no virtlogd runs; without ``migration_host`` a peer is told the bare host
    name; cgroups are off because two nodes would share (and leave behind) the same groups.
    """
    mounted = f'hugetlbfs_mount = "{layout.hugepages}"\n' if hugepages else 'hugetlbfs_mount = ""\n'
    return (
        'user = "root"\n'
        'group = "root"\n'
        'security_driver = "none"\n'
        "remember_owner = 0\n"
        "namespaces = [ ]\n"
        "cgroup_controllers = [ ]\n"
        'stdio_handler = "file"\n'
        'swtpm_user = "root"\n'
        'swtpm_group = "root"\n'
        f'migration_host = "{ip}"\n'
        'migration_address = "0.0.0.0"\n'
        f'migrate_tls_x509_cert_dir = "{certificates}"\n'
        "migrate_tls_x509_verify = 1\n"
    ) + mounted


def libvirtd_conf(layout: NodeLayout, ip: str) -> str:
    """/etc/libvirt/libvirtd.conf: a unix socket in the node's folder, TCP inside the lab's network only."""
    return (
        f'host_uuid = "{uuid.uuid5(uuid.NAMESPACE_URL, str(layout.root))}"\n'
        "listen_tls = 0\n"
        "listen_tcp = 1\n"
        'auth_tcp = "none"\n'
        f'listen_addr = "{ip}"\n'
        'unix_sock_rw_perms = "0700"\n'
        'auth_unix_rw = "none"\n'
        'auth_unix_ro = "none"\n'
        f'log_outputs = "3:file:{layout.libvirtd_log}"\n'
    )


def hosts(addresses: Mapping[str, str]) -> str:
    """/etc/hosts: every node by its name."""
    return "127.0.0.1 localhost\n" + "".join(f"{ip} {name}\n" for name, ip in addresses.items())


def agent_config(layout: NodeLayout, name: str, addresses: Mapping[str, str], pki: Path) -> Config:
    """The configuration of the agent of node ``name``; ``addresses`` are those of all nodes."""
    own = addresses[name]
    return Config(
        node=name,
        allow_emulation=True,
        log_format="logfmt",
        listen=Listen(socket=str(layout.agent_socket), tcp=f"{own}:{AGENT_PORT}"),
        tls=Tls(certificate=f"{pki}/{name}.crt", key=f"{pki}/{name}.key", ca=f"{pki}/ca.crt"),
        libvirt=Libvirt(migration_uri="qemu+tcp://{address}/system"),
        migration=Migration(address=own, tls_dir=str(qemu_folder(pki, name))),
        network=Network(bridge=NODE_BRIDGE, node_ports="30000-30099"),
        networks={LAB_NETWORK: NodeNetwork(bridge=NODE_BRIDGE)},
        memory=Memory(overcommit_percent=400),  # its guests are idle, and many
        peers={other: f"{ip}:{AGENT_PORT}" for other, ip in addresses.items() if other != name},
    )


def toml(config: Config) -> str:
    """``config`` as TOML: first the plain keys, then one table for each section, however deep."""
    return "\n".join(_table(msgspec.to_builtins(config), "")) + "\n"


def _table(values: Mapping[str, Any], path: str) -> list[str]:
    plain = {key: value for key, value in values.items() if not isinstance(value, dict)}
    lines = [f"{json.dumps(key) if path else key} = {json.dumps(value)}" for key, value in plain.items()]
    for key, value in values.items():
        if isinstance(value, dict):
            inner = f"{path}.{key}" if path else key
            lines += ["", f"[{inner}]", *_table(value, inner)]
    return lines
