# SPDX-License-Identifier: Apache-2.0
"""A node is emptied: to whom its guests go, what stays and is told, and how it ends for a script."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest
from agent_world import client, eventually, leftovers, running, ticker, ticks, until_gone

from launcher.cli.main import run
from launcher.errors import InvalidRequest, NotFound
from launcher.lab.image import Image
from launcher.lab.lab import Lab
from launcher.v1.drain_pb2 import DrainResponse

pytestmark = pytest.mark.node

LOCAL = """
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {name: local, namespace: default}
spec:
  terminationGracePeriodSeconds: 0
  domain:
    memory: {guest: 64Mi}
    devices: {autoattachPodInterface: false, disks: [{name: d, disk: {bus: virtio}}]}
  volumes: [{name: d, hostDisk: {path: /var/lib/launcher/local.img, type: DiskOrCreate, capacity: 4Mi}}]
"""


@pytest.fixture(scope="module")
def lab(needs_nodes: None) -> Iterator[Lab]:
    """Three nodes: one to empty, two to go to."""
    with Lab(names=("a", "b", "c")) as made:
        made.start_agents()
        yield made


def test_a_node_is_emptied_by_what_its_guests_allow(
    lab: Lab, bootsector_image: Image, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b, c = (client(lab.node(name)) for name in "abc")
    with a, b, c:
        for name in ("one", "two", "three", "four"):
            a.instances.create(ticker(bootsector_image, name))
        a.instances.create(ticker(bootsector_image, "kept", extra="evictionStrategy: None"))
        a.instances.create(ticker(bootsector_image, "foreign", extra="evictionStrategy: External"))
        a.instances.create(LOCAL)
        for name in ("one", "two", "three", "four", "kept", "foreign", "local"):
            running(a, name)

        with pytest.raises(InvalidRequest, match="no such peer"):
            list(a.drain(["elsewhere"]))
        with pytest.raises(NotFound):
            list(a.drain([], ["default/nobody"]))
        planned = list(a.drain([], dry_run=True))
        assert {s.name for s in planned if s.state == DrainResponse.STATE_WOULD_MOVE} == {
            "one",
            "two",
            "three",
            "four",
        }
        assert len(a.instances.list()) == 7, "nothing was touched"
        assert a.migrations.list() == []

        capsys.readouterr()
        assert run(["-s", lab.node("a").agent_target, "drain", "one", "--to", "b"]) == 0
        assert "default/one is on b" in capsys.readouterr().out
        assert running(b, "one")["status"].get("evacuationNodeName") is None

        steps = list(a.drain([]))
        moved = {step.name: step.target for step in steps if step.state == DrainResponse.STATE_MOVED}
        stays = {step.name: step.reason for step in steps if step.state == DrainResponse.STATE_STAYS}
        assert moved.keys() == {"two", "three", "four"}, stays
        assert set(moved.values()) == {"b", "c"}, "both are used"
        assert stays.keys() == {"kept", "foreign", "local"}
        assert "evictionStrategy None" in stays["kept"]
        assert "only this node reaches: d" in stays["local"]
        marked = {
            vmi["metadata"]["name"]: vmi["status"].get("evacuationNodeName") for vmi in a.instances.list()
        }
        assert marked == {"kept": None, "foreign": "a", "local": None}
        for name, target in moved.items():
            agent = b if target == "b" else c
            running(agent, name)
            eventually("it ticks there", partial(ticks, agent, name))
        a.instances.create(ticker(bootsector_image, "new"))
        running(a, "new")

        assert run(["-s", lab.node("a").agent_target, "drain", "default/kept"]) == 1
        assert "default/kept stays: evictionStrategy None" in capsys.readouterr().err
        assert run(["-s", lab.node("a").agent_target, "drain", "--undo"]) == 0
        assert a.instances.get("foreign", namespace="default")["status"].get("evacuationNodeName") is None
        for agent in (a, b, c):
            for vmi in agent.instances.list():
                agent.instances.delete(vmi["metadata"]["name"], namespace="default", grace_period_s=0)
            for vmi in agent.instances.list():
                until_gone(agent, vmi["metadata"]["name"])
        for name in "abc":
            assert leftovers(lab.node(name)) == []
