# SPDX-License-Identifier: Apache-2.0
"""The real cloud-init of a Debian guest takes what both data sources tell: user data, network, SSH key.

Minutes long, emulated: ``make test-slow`` runs it. ``test_storage_volumes`` reads the same media in CI.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest
from agent_world import client, eventually, leftovers
from debian_guest import MEMORY, ROOT_DEVICE, DebianGuest, debian_guest
from feature_guests import Object
from storage_world import remove_all

from launcher.cli.client import Client
from launcher.lab.image import INITRD_PATH, KERNEL_PATH
from launcher.lab.lab import Lab
from launcher.lab.node import Node
from launcher.v1.types_pb2 import ClaimBinding, Companions, KeyedData

pytestmark = [pytest.mark.node, pytest.mark.slow]

BOOT_TIMEOUT_S = 1200.0
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJkVfP0Cq7m1mVbzP0bq2cZ5JpQ2m1S3o0d4k9yqVd3T tester"
MAC = "02:00:00:00:00:2a"
REPORT = """\
#cloud-config
write_files:
  - {path: /root/written, content: "from the user data of SOURCE"}
runcmd:
  - |
    {
      echo "REPORT written $(cat /root/written)"
      echo "REPORT host $(hostname)"
      echo "REPORT source $(cloud-init query platform) $(cloud-init query subplatform)"
      echo "REPORT instance $(cloud-init query instance_id)"
      echo "REPORT address $(ip -o -4 addr show scope global)"
      cd /home/debian/.ssh
      echo "REPORT key $(stat -c '%U %a' authorized_keys) $(cat authorized_keys)"
      echo "REPORT end"
    } >/dev/ttyS0
"""
NETWORK = f"""\
version: 2
ethernets:
  nic:
    match: {{macaddress: "{MAC}"}}
    set-name: uplink
    addresses: [192.0.2.7/24]
"""
OPENSTACK_NETWORK = {
    "links": [{"id": "uplink", "type": "phy", "ethernet_mac_address": MAC}],
    "networks": [
        {
            "id": "net",
            "link": "uplink",
            "type": "ipv4",
            "ip_address": "192.0.2.9",
            "netmask": "255.255.255.0",
            "network_id": "net",
        }
    ],
    "services": [],
}
SOURCES = {
    "nocloud": ("cloudInitNoCloud", "noCloud", NETWORK),
    "drive": ("cloudInitConfigDrive", "configDrive", json.dumps(OPENSTACK_NETWORK)),
}
UUIDS = {
    "nocloud": "0f6c9f2e-1f5b-4d0e-9a51-6d3f5e7c8b22",
    "drive": "0f6c9f2e-1f5b-4d0e-9a51-6d3f5e7c8b23",
}


@pytest.fixture(scope="module")
def debian(needs_nodes: None) -> DebianGuest:
    return debian_guest()


@pytest.fixture(scope="module")
def node(needs_nodes: None) -> Iterator[Node]:
    with Lab(names=("a",)) as lab:
        lab.start_agents()
        yield lab.node("a")


@pytest.fixture
def agent(node: Node) -> Iterator[Client]:
    with client(node) as agent:
        yield agent
        remove_all(agent)
        assert leftovers(node) == []


def manifest(debian: DebianGuest, name: str) -> Object:
    volume, method, network = SOURCES[name]
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "hostname": f"guest-{name}",
            "terminationGracePeriodSeconds": 0,
            "domain": {
                "memory": {"guest": MEMORY},
                "firmware": {
                    "uuid": UUIDS[name],
                    "kernelBoot": {
                        "kernelArgs": f"console=ttyS0 root={ROOT_DEVICE} rw",
                        "container": {
                            "image": debian.boot.reference,
                            "kernelPath": KERNEL_PATH,
                            "initrdPath": INITRD_PATH,
                        },
                    },
                },
                "devices": {
                    "autoattachGraphicsDevice": False,
                    "rng": {},
                    "disks": [{"name": disk, "disk": {"bus": "virtio"}} for disk in ("root", "seed")],
                    "interfaces": [{"name": "default", "masquerade": {}, "macAddress": MAC}],
                },
            },
            "networks": [{"name": "default", "pod": {}}],
            "accessCredentials": [
                {
                    "sshPublicKey": {
                        "source": {"secret": {"secretName": "key"}},
                        "propagationMethod": {method: {}},
                    }
                }
            ],
            "volumes": [
                {"name": "root", "ephemeral": {"persistentVolumeClaim": {"claimName": "debian"}}},
                {
                    "name": "seed",
                    volume: {"userData": REPORT.replace("SOURCE", name), "networkData": network},
                },
            ],
        },
    }


def test_cloud_init_takes_user_data_network_and_key_from_both_sources(
    agent: Client, debian: DebianGuest
) -> None:
    beside = Companions(
        secrets={"key": KeyedData(data={"key1": KEY.encode()})},
        claims=[ClaimBinding(claim="debian", path=str(debian.disk))],
    )
    for name in SOURCES:
        agent.instances.create(manifest(debian, name), beside)
    told = {name: report(agent, name) for name in SOURCES}
    for name in SOURCES:
        assert told[name]["written"] == f"from the user data of {name}"
        assert told[name]["host"] == f"guest-{name}"
        assert told[name]["key"] == f"debian 600 {KEY}"
    assert told["nocloud"]["source"] == "nocloud config-disk (/dev/vdb)"
    assert told["drive"]["source"] == "configdrive config-disk (/dev/vdb)"
    for name in SOURCES:  # cloud-init takes a config drive's uuid for it
        assert told[name]["instance"] == UUIDS[name]
    assert "uplink" in told["nocloud"]["address"]
    assert " 192.0.2.7/24 " in told["nocloud"]["address"]
    assert " 192.0.2.9/24 " in told["drive"]["address"]


def report(agent: Client, name: str) -> dict[str, str]:
    """What the guest says when cloud-init has run."""

    def told() -> str:
        return agent.instances.console_log(name, namespace="default").decode(errors="replace")

    eventually(f"{name} reports", lambda: re.search(r"^REPORT end", told(), re.M), timeout_s=BOOT_TIMEOUT_S)
    return dict(re.findall(r"^REPORT (\w+) (.*?)\s*$", told(), re.MULTILINE))
