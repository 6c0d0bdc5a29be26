# SPDX-License-Identifier: Apache-2.0
"""The manifests that are measured, as the JSON texts in which a client would send them. Measures nothing."""

from __future__ import annotations

import json
from typing import Any

import yaml

DISKS = 20
NICS = 8
MEBIBYTE = 2**20

_LABEL = "v" * 60

Json = dict[str, Any]


def typical() -> str:
    """A guest of about 20 lines of YAML: a disk image, cloud-init, one NIC on the pod network."""
    return _text(
        "typical",
        domain={
            "cpu": {"cores": 2},
            "memory": {"guest": "2Gi"},
            "devices": {
                "disks": [
                    {"name": "root", "disk": {"bus": "virtio"}},
                    {"name": "init", "disk": {"bus": "virtio"}},
                ],
                "interfaces": [{"name": "default", "masquerade": {}}],
            },
        },
        networks=[{"name": "default", "pod": {}}],
        volumes=[
            {"name": "root", "containerDisk": {"image": "registry.example/fedora:latest"}},
            {"name": "init", "cloudInitNoCloud": {"userData": "#cloud-config\npassword: fedora\n"}},
        ],
    )


def large(*, pinned: bool = False) -> str:
    """20 disks, 8 NICs and 64 vCPUs; ``pinned`` gives each vCPU a pCPU of its own."""
    cpu: Json = {"sockets": 2, "cores": 16, "threads": 2}
    domain: Json = {
        "cpu": cpu,
        "memory": {"guest": "64Gi"},
        "devices": {
            "networkInterfaceMultiqueue": True,
            "rng": {},
            "disks": [_disk(index) for index in range(DISKS)],
            "interfaces": [_interface(index) for index in range(NICS)],
        },
    }
    if pinned:
        cpu["dedicatedCpuPlacement"] = True
        domain["resources"] = {"requests": {"memory": "64Gi"}, "limits": {"memory": "64Gi"}}
    return _text(
        "large",
        domain=domain,
        networks=[_network(index) for index in range(NICS)],
        volumes=[_volume(index) for index in range(DISKS)],
    )


def of_a_mebibyte() -> str:
    """A valid manifest of 1 MiB: a quarter in annotations, which may have no more, the rest in labels."""
    manifest = json.loads(typical())
    metadata = manifest["metadata"]
    metadata["annotations"] = {f"example.org/note-{number:04}": "n" * 200 for number in range(1000)}
    left = MEBIBYTE - len(json.dumps(manifest))
    entry = len(json.dumps({_label(0): _LABEL}))
    metadata["labels"] = {_label(number): _LABEL for number in range(left // entry)}
    return json.dumps(manifest)


def as_yaml(text: str) -> str:
    """The same manifest as people write it."""
    return str(yaml.safe_dump(json.loads(text), sort_keys=False))


def _text(name: str, *, domain: Json, networks: list[Json], volumes: list[Json]) -> str:
    return json.dumps(
        {
            "apiVersion": "kubevirt.io/v1",
            "kind": "VirtualMachineInstance",
            "metadata": {"name": name, "namespace": "bench", "uid": "8f1d1d5c-9d6b-4b8e-8a4c-0c8f8a0b7f11"},
            "spec": {"domain": domain, "networks": networks, "volumes": volumes},
        }
    )


def _label(number: int) -> str:
    return f"example.org/label-{number:05}"


def _disk(index: int) -> Json:
    bus = ("virtio", "scsi", "sata")[index % 3]
    disk: Json = {"name": f"disk{index}", "disk": {"bus": bus}, "serial": f"SERIAL{index:04}"}
    if index < 4:
        disk["bootOrder"] = index + 1
    if index % 2:
        disk["cache"] = "none"
    return disk


def _volume(index: int) -> Json:
    name = f"disk{index}"
    if index == 0:
        return {"name": name, "containerDisk": {"image": "registry.example/fedora:latest"}}
    if index % 2:
        return {"name": name, "persistentVolumeClaim": {"claimName": f"claim-{index}"}}
    return {"name": name, "emptyDisk": {"capacity": "10Gi"}}


def _interface(index: int) -> Json:
    if index == 0:
        return {"name": "default", "masquerade": {}, "ports": [{"port": 22, "protocol": "TCP"}]}
    return {"name": f"net{index}", "bridge": {}, "macAddress": f"02:00:00:00:00:{index:02x}"}


def _network(index: int) -> Json:
    if index == 0:
        return {"name": "default", "pod": {}}
    return {"name": f"net{index}", "multus": {"networkName": f"bridge-{index}"}}
