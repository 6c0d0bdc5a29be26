# SPDX-License-Identifier: Apache-2.0
"""Records on the wire."""

from __future__ import annotations

import pytest

from launcher.agent.port import EventType, NodeView
from launcher.api import convert
from launcher.errors import InvalidRequest
from launcher.rpc.struct import to_plain
from launcher.spec.load import load_vmi
from launcher.v1 import instances_pb2, types_pb2

MANIFEST = """
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {name: a, labels: {app: db}}
spec:
  domain:
    cpu: {cores: 3}
    memory: {guest: 1.5Gi}
    devices:
      disks: [{name: root, disk: {bus: virtio}}]
  volumes: [{name: root, emptyDisk: {capacity: 1Gi}}]
"""


def test_struct_is_the_kubernetes_object() -> None:
    assert to_plain(convert.struct(load_vmi(MANIFEST))) == {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": {"name": "a", "labels": {"app": "db"}},
        "spec": {
            "domain": {
                "cpu": {"cores": 3},
                "memory": {"guest": "1.5Gi"},
                "devices": {"disks": [{"name": "root", "disk": {"bus": "virtio"}}]},
            },
            "volumes": [{"name": "root", "emptyDisk": {"capacity": "1Gi"}}],
        },
    }


def test_key_defaults_the_namespace_and_wants_a_name() -> None:
    assert convert.key(instances_pb2.GetInstanceRequest(name="a")) == ("default", "a")
    assert convert.key(instances_pb2.GetInstanceRequest(name="a", namespace="b")) == ("b", "a")
    with pytest.raises(InvalidRequest, match="name"):
        convert.key(instances_pb2.GetInstanceRequest(namespace="b"))


def test_every_event_type_has_its_number() -> None:
    names = {types_pb2.EventType.Name(value) for value in convert.EVENT_TYPES.values()}
    assert names == {f"EVENT_TYPE_{kind}" for kind in EventType}


def test_companions() -> None:
    wire = types_pb2.Companions(
        secrets={"s": types_pb2.KeyedData(data={"k": b"\xff"})},
        config_maps={"c": types_pb2.KeyedData(data={"k": b"v"})},
        claims=[types_pb2.ClaimBinding(claim="d", path="/d", shared=True, access_modes=["ReadWriteMany"])],
    )
    found = convert.companions(wire)
    assert found.secrets == {"s": {"k": b"\xff"}}
    assert found.config_maps == {"c": {"k": b"v"}}
    (claim,) = found.claims
    assert (claim.claim, claim.path, claim.block, claim.shared) == ("d", "/d", False, True)
    assert claim.access_modes == ("ReadWriteMany",)


def test_node_facts_may_hold_anything_that_is_data() -> None:
    view = NodeView(
        name="n", version="1", libvirt_connected=True, libvirt_reason="",
        facts={"tuple": (1, 2), "deep": {"x": None}}, instances=1, migrations=2, peers=("p",),
    )  # fmt: skip
    assert to_plain(convert.node(view).facts) == {"tuple": [1, 2], "deep": {"x": None}}
