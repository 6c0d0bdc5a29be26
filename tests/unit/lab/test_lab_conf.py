# SPDX-License-Identifier: Apache-2.0
"""Nodes' configuration files say what the agent and libvirtd will read from them."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher.errors import InvalidRequest
from launcher.host import config
from launcher.lab import conf
from launcher.lab.layout import NodeLayout

ADDRESSES = {"a": "10.99.0.1", "b": "10.99.0.2", "c": "10.99.0.3"}
LAYOUT = NodeLayout(Path("/run/lab/b"))


def test_the_agents_configuration_is_read_back_the_same(tmp_path: Path) -> None:
    made = conf.agent_config(LAYOUT, "b", ADDRESSES, Path("/run/lab/pki"))
    file = tmp_path / "launcherd.toml"
    file.write_text(conf.toml(made))
    assert config.load(file) == made


def test_an_agent_knows_the_others_and_not_itself() -> None:
    made = conf.agent_config(LAYOUT, "b", ADDRESSES, Path("/run/lab/pki"))
    assert made.peers == {"a": "10.99.0.1:7443", "c": "10.99.0.3:7443"}
    assert made.listen.tcp == "10.99.0.2:7443"
    assert made.migration.address == "10.99.0.2"


def test_hugepages_are_off_where_they_cannot_be_mounted() -> None:
    assert 'hugetlbfs_mount = "/run/lab/b/huge"\n' in conf.qemu_conf(
        LAYOUT, "10.99.0.2", hugepages=True, certificates=Path("/p")
    )
    assert 'hugetlbfs_mount = ""\n' in conf.qemu_conf(
        LAYOUT, "10.99.0.2", hugepages=False, certificates=Path("/p")
    )


def test_each_node_has_a_host_uuid_of_its_own() -> None:
    texts = {conf.libvirtd_conf(NodeLayout(Path(f"/run/lab/{name}")), ADDRESSES[name]) for name in ADDRESSES}
    uuids = {line for text in texts for line in text.splitlines() if line.startswith("host_uuid")}
    assert len(uuids) == 3


@pytest.mark.parametrize(("length", "fits"), [(107, True), (108, False)])
def test_a_folder_is_as_long_as_a_sockets_path_allows(length: int, fits: bool) -> None:
    suffix = len("/run/libvirt-admin-sock")
    layout = NodeLayout(Path("/" + "x" * (length - suffix - 1)))
    if fits:
        layout.check()
    else:
        with pytest.raises(InvalidRequest, match="has 108 bytes"):
            layout.check()


@pytest.mark.parametrize(
    ("inside", "outside"),
    [
        ("/run/launcher/u/serial0.sock", "/run/lab/b/agent-run/u/serial0.sock"),
        ("/var/lib/launcher", "/run/lab/b/state"),
        ("/var/lib/launcher-other/x", "/var/lib/launcher-other/x"),
        ("/usr/bin/env", "/usr/bin/env"),
    ],
)
def test_a_nodes_paths_are_found_outside(inside: str, outside: str) -> None:
    assert LAYOUT.outside(inside) == Path(outside)
