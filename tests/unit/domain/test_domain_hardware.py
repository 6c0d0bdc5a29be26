# SPDX-License-Identifier: Apache-2.0
"""What may change of a domain while it runs, or when it moves, is read and rewritten."""

from __future__ import annotations

from lxml import etree

from launcher.domain.devices.memory import memory_device
from launcher.domain.read import CellView, MemoryDeviceView, read_domain
from launcher.domain.retarget import Destination, retarget
from launcher.plan.devices.model import PciAddress
from launcher.units import GIB, MIB

LIVE = """
<domain type='qemu' id='3'>
  <name>lab_guest</name><uuid>5d307ca9-b3ef-428c-8861-06e72d69f223</uuid>
  <maxMemory slots='1' unit='KiB'>4194304</maxMemory><memory unit='KiB'>4194304</memory>
  <vcpu placement='static' cpuset='0,8' current='2'>4</vcpu>
  <vcpus><vcpu id='0' enabled='yes'/><vcpu id='1' enabled='yes'/>
    <vcpu id='2' enabled='no'/><vcpu id='3' enabled='no'/></vcpus>
  <cputune><vcpupin vcpu='0' cpuset='4'/><vcpupin vcpu='1' cpuset='6-7'/></cputune>
  <cpu><numa><cell id='0' cpus='0-1,3' memory='524288' unit='KiB'/>
    <cell id='1' cpus='2' memory='524288' unit='KiB'/></numa></cpu>
  <devices>
    <controller type='pci' index='0' model='pcie-root'/>
    <controller type='pci' index='1' model='pcie-root-port'>
      <address type='pci' domain='0x0000' bus='0x00' slot='0x02' function='0x0'/></controller>
    <controller type='pci' index='2' model='pcie-root-port'/>
    <controller type='pci' index='3' model='pcie-root-port'><target hotplug='off'/></controller>
    <controller type='pci' index='10' model='pcie-root-port'/>
    <memory model='virtio-mem'>
      <target><size unit='KiB'>3145728</size><node>0</node><block unit='KiB'>2048</block>
        <requested unit='KiB'>524288</requested><current unit='KiB'>262144</current></target>
      <alias name='ua-memory'/>
      <address type='pci' domain='0x0000' bus='0x0a' slot='0x00' function='0x0'/>
    </memory>
    <memory model='dimm'><target><size unit='KiB'>1024</size></target></memory>
    <interface type='ethernet'><mac address='52:54:00:00:00:01'/>
      <address type='pci' domain='0x0000' bus='0x01' slot='0x00' function='0x0'/></interface>
    <vsock model='virtio'><cid auto='yes' address='7'/></vsock>
  </devices>
</domain>
"""


def test_memory_is_what_it_booted_with_and_what_was_plugged() -> None:
    view = read_domain(LIVE)
    assert view.memory_devices == (
        MemoryDeviceView(
            alias="memory",
            size=3 * GIB,
            block=2 * MIB,
            requested=512 * MIB,
            current=256 * MIB,
            address=PciAddress(bus=10, slot=0),
        ),
    )
    assert view.boot_memory == GIB
    assert view.used_memory == GIB + 512 * MIB


def test_vcpus_their_pins_cells_and_the_slots_that_are_free() -> None:
    view = read_domain(LIVE)
    assert (view.vcpus, view.max_vcpus, view.vcpu_slots) == (2, 4, True)
    assert view.pins == {0: (4,), 1: (6, 7)}
    assert view.cells == (
        CellView(vcpus=frozenset({0, 1, 3}), memory=512 * MIB),
        CellView(vcpus=frozenset({2}), memory=512 * MIB),
    )
    assert view.free_ports == (2,), "1 and 10 are taken, nothing may be plugged into 3"
    assert view.vsock_cid == 7


def test_a_device_can_be_written_as_it_was_read() -> None:
    (device,) = read_domain(LIVE).memory_devices
    node = etree.fromstring(memory_device(device))
    again = read_domain(
        LIVE.replace("<memory model='dimm'>", memory_device(device) + "<memory model='dimm'>")
    )
    assert node.get("model") == "virtio-mem"
    assert again.memory_devices[1] == MemoryDeviceView(
        alias=device.alias,
        size=device.size,
        block=device.block,
        requested=device.requested,
        address=device.address,
    )


def test_cpus_and_vsock_address_are_the_destinations() -> None:
    moved = retarget(LIVE, Destination(cpuset=(2, 3), vsock_cid=9))
    assert attribute(moved, "vcpu/@cpuset") == "2,3"
    assert attribute(moved, "devices/vsock/cid/@address") == "9"
    assert attribute(moved, "devices/vsock/cid/@auto") == "no"
    plain = retarget(LIVE, Destination())
    assert attribute(plain, "vcpu/@cpuset") == ""
    assert attribute(plain, "vcpu/@current") == "2", "the vCPUs that were plugged go along"
    assert attribute(plain, "devices/vsock/cid/@address") == "7"


def attribute(xml: str, path: str) -> str:
    return str(etree.fromstring(xml).xpath(f"string({path})"))
