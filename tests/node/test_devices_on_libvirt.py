# SPDX-License-Identifier: Apache-2.0
"""Planned devices on a real libvirtd and QEMU: accepted, where the plan put them, with room for hotplug."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from hypervisor_guests import connected, new_uuid
from lxml import etree

from launcher.domain.build import build
from launcher.domain.devices.hostdev import hostdev_element
from launcher.domain.element import to_text
from launcher.domain.retarget import Destination, retarget
from launcher.errors import HostUnsupported
from launcher.hypervisor.driver import LibvirtHypervisor
from launcher.hypervisor.port import DomainState
from launcher.lab.node import Node
from launcher.plan.allocations import Allocations
from launcher.plan.facts import NodeFacts, version
from launcher.plan.make import make_plan
from launcher.plan.model import VMPlan
from launcher.plan.settings import PlanSettings
from launcher.plan.steps import CreateImage, CreateTap, MakeDirectory
from launcher.spec.codec import dec_hook
from launcher.spec.model import VirtualMachineInstance

pytestmark = pytest.mark.node

DEVICES = """
rng: {}
sound: {name: snd}
watchdog: {name: w}
clientPassthrough: {}
downwardMetrics: {}
blockMultiQueue: true
networkInterfaceMultiqueue: true
panicDevices: [{model: isa}, {model: hyperv}]
inputs: [{name: t, type: tablet, bus: usb}, {name: v, type: tablet, bus: virtio}]
disks:
- {name: a, disk: {bus: virtio}, bootOrder: 1, serial: A1}
- {name: b, disk: {bus: scsi}, blockSize: {custom: {logical: 512, physical: 4096}}}
- {name: c, disk: {bus: sata}}
- {name: d, disk: {bus: usb}}
- {name: e, disk: {bus: virtio, pciAddress: '0000:03:00.0'}}
- {name: f, cdrom: {bus: scsi}}
- {name: empty, cdrom: {bus: sata}}
interfaces:
- {name: n1, bridge: {}, bootOrder: 2}
- {name: n2, bridge: {}, model: e1000, state: down}
- {name: n3, bridge: {}, model: e1000e, acpiIndex: 4}
"""


TEAM = """
disks: []
interfaces:
- {name: slow, bridge: {}, macAddress: '02:00:00:00:00:77'}
- {name: fast, sriov: {}, macAddress: '02:00:00:00:00:77'}
"""


def planned(
    devices: str = DEVICES,
    annotations: dict[str, str] | None = None,
    functions: dict[str, str] | None = None,
) -> VMPlan:
    """A plan of a TCG guest for the oldest libvirt, whose images are all made by its steps."""
    uuid = new_uuid()
    inside = msgspec.yaml.decode(devices)
    volumes = [{"name": d["name"], "emptyDisk": {"capacity": "1Mi"}} for d in inside["disks"]]
    raw = {
        "metadata": {"name": uuid[:8], "namespace": "lab", "annotations": annotations or {}},
        "spec": {
            "domain": {"memory": {"guest": "64Mi"}, "cpu": {"cores": 2}, "devices": inside},
            "volumes": [volume for volume in volumes if volume["name"] != "empty"],
        },
    }
    vmi = msgspec.convert(raw, VirtualMachineInstance, dec_hook=dec_hook)
    facts = NodeFacts(kvm_usable=False, libvirt_version=version(9, 0), qemu_version=version(7, 2))
    taps = {nic["name"]: f"t{uuid[:8]}{index}" for index, nic in enumerate(inside["interfaces"])}
    allocations = Allocations(uid=uuid, uuid=uuid, taps=taps, virtual_functions=functions or {})
    return make_plan(vmi, facts, allocations, PlanSettings(allow_emulation=True))


def make(node: Node, plan: VMPlan) -> None:
    """Make what the plan's steps name; the lab's node is thrown away afterwards, so nothing is released."""
    for step in plan.steps:
        match step:
            case MakeDirectory():
                node.run("mkdir", "-p", step.path)
            case CreateImage():
                node.run("qemu-img", "create", "-q", "-f", step.format, step.path, str(step.size))
            case CreateTap():
                several = ["multi_queue"] if step.queues > 1 else []
                node.run("ip", "tuntap", "add", "dev", step.name, "mode", "tap", *several)
            case _:
                raise AssertionError(f"a step that this test does not make: {step}")


@asynccontextmanager
async def started(node: Node, plan: VMPlan) -> AsyncIterator[tuple[LibvirtHypervisor, str]]:
    """The plan's domain, started without running, and its hypervisor."""
    await asyncio.to_thread(make, node, plan)
    async with connected(node.libvirt_uri) as (hypervisor, _):
        uuid = await hypervisor.define(build(plan))
        try:
            await hypervisor.create(uuid, paused=True)
            yield hypervisor, uuid
        finally:
            await hypervisor.destroy(uuid)
            await hypervisor.undefine(uuid)


def places(xml: str) -> Iterator[tuple[str, str, str]]:
    """Element, bus and slot of all that sits on PCI, ports themselves aside."""
    for device in etree.fromstring(xml).iterfind("devices/*"):
        address = device.find("address")
        if address is not None and address.get("type") == "pci" and device.get("model") != "pcie-root-port":
            yield str(device.tag), address.get("bus", ""), address.get("slot", "")


async def test_every_device_starts_where_it_was_planned(node_a: Node, tmp_path: Path) -> None:
    plan = planned()
    async with started(node_a, plan) as (hypervisor, uuid):
        live = await hypervisor.domain_xml(uuid)
        assert set(places(build(plan))) <= set(places(live))
        ports = [c.index for c in plan.devices.controllers if c.model == "pcie-root-port"]
        assert len(ports) > len({bus for _, bus, _ in places(build(plan))})
        # Three ports are promised to be free: each takes a disk.
        for number in range(3):
            image = tmp_path / f"{number}.img"
            image.write_bytes(bytes(1024 * 1024))
            attach = ["virsh", "attach-disk", uuid, str(image), f"vdx{'abc'[number]}", "--live"]
            await asyncio.to_thread(node_a.run, *attach, "--targetbus", "virtio", "--subdriver", "raw")


@pytest.mark.parametrize(
    "annotations",
    [{"kubevirt.io/placePCIDevicesOnRootComplex": "true"}, {"kubevirt.io/disablePCIHole64": "true"}],
)
async def test_other_places_start_too(node_a: Node, annotations: dict[str, str]) -> None:
    devices = DEVICES.replace(", pciAddress: '0000:03:00.0'", "")
    plan = planned(devices, annotations)
    async with started(node_a, plan) as (hypervisor, uuid):
        assert set(places(build(plan))) <= set(places(await hypervisor.domain_xml(uuid)))


async def test_transitional_devices_start(node_a: Node) -> None:
    devices = DEVICES.replace(", pciAddress: '0000:03:00.0'", "") + "useVirtioTransitional: true\n"
    async with started(node_a, planned(devices)) as (hypervisor, uuid):
        assert 'model="virtio-transitional"' in (await hypervisor.domain_xml(uuid)).replace("'", '"')


async def test_what_stands_in_for_a_virtual_function_starts_alone(node_a: Node) -> None:
    """As a destination begins: libvirt takes the team, QEMU offers a standby, the function comes later.

    There is none here, so it does not: the guest goes on, and nothing of it is left in the domain.
    """
    plan = planned(TEAM, functions={"fast": "0000:3b:02.1"})
    (function,) = plan.devices.hostdevs
    await asyncio.to_thread(make, node_a, plan)
    async with connected(node_a.libvirt_uri) as (hypervisor, _):
        uuid = await hypervisor.define(build(plan))
        assert await hypervisor.plugged(uuid, ("sriov-fast",)) == ("sriov-fast",)
        await hypervisor.undefine(uuid)
        await hypervisor.define(retarget(build(plan), Destination(hostdevs=(function,))))
        try:
            await hypervisor.create(uuid)
            ask = ["virsh", "qemu-monitor-command", uuid, "--hmp", "info qtree"]
            assert "failover = true" in await asyncio.to_thread(node_a.run, *ask)
            with pytest.raises(HostUnsupported, match="host PCI devices"):
                await hypervisor.attach_device(uuid, to_text(hostdev_element(function)))
            assert await hypervisor.plugged(uuid, ("sriov-fast",)) == ()
            assert (await hypervisor.domain(uuid)).state is DomainState.RUNNING
        finally:
            await hypervisor.destroy(uuid, graceful=False)
            await hypervisor.undefine(uuid)
