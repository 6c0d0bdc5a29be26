# SPDX-License-Identifier: Apache-2.0
"""A source's XML becomes its destination's."""

from __future__ import annotations

from lxml import etree
from msgspec.structs import replace

from launcher.domain.block_copy import copy_xml
from launcher.domain.read import read_domain
from launcher.domain.retarget import Destination, NewSource, retarget
from launcher.plan.devices.model import DiskPlan, DiskSource
from launcher.plan.model import CPUTune, NumaTune, VCPUPin

SOURCE = """
<domain type='kvm'>
  <name>lab_guest</name><uuid>5d307ca9-b3ef-428c-8861-06e72d69f223</uuid>
  <vcpu>1</vcpu>
  <cputune><vcpupin vcpu='0' cpuset='4'/></cputune>
  <numatune><memory mode='strict' nodeset='0'/></numatune>
  <os><type>hvm</type><nvram template='/usr/share/x'>/a/i/nvram.fd</nvram></os>
  <devices>
    <interface type='ethernet'><mac address='52:54:00:00:00:01'/><target dev='tap0' managed='no'/>
      <alias name='ua-default'/></interface>
    <interface type='ethernet'><mac address='52:54:00:00:00:02'/><alias name='ua-other'/></interface>
    <serial type='unix'><source mode='bind' path='/run/a/serial0.sock'/>
      <log file='/a/i/serial0.log'/></serial>
    <graphics type='vnc'><listen type='socket' socket='/run/a/vnc.sock'/></graphics>
    <disk type='file'><source file='/data/a/disk.img'/><target dev='vda'/></disk>
  </devices>
</domain>
"""


def test_names_and_places_change_and_the_guest_does_not() -> None:
    result = retarget(
        SOURCE,
        Destination(
            taps={"default": "tap7", "other": "tap8"},
            paths=(("/run/a", "/run/b"), ("/a", "/b")),
            cputune=CPUTune(vcpus=(VCPUPin(vcpu=0, cpu=9),)),
            numatune=NumaTune(nodes=(1,)),
        ),
    )
    root = etree.fromstring(result)
    assert [nic.target for nic in read_domain(result).interfaces] == ["tap7", "tap8"]
    assert root.xpath("string(//serial/source/@path)") == "/run/b/serial0.sock"
    assert root.xpath("string(//log/@file)") == "/b/i/serial0.log"
    assert root.xpath("string(//listen/@socket)") == "/run/b/vnc.sock"
    assert root.findtext("os/nvram") == "/b/i/nvram.fd"
    assert root.xpath("string(//disk/source/@file)") == "/data/a/disk.img"
    assert root.xpath("string(cputune/vcpupin/@cpuset)") == "9"
    assert root.xpath("string(numatune/memory/@nodeset)") == "1"
    assert root.findtext("uuid") == "5d307ca9-b3ef-428c-8861-06e72d69f223"


def test_pins_of_the_source_are_dropped() -> None:
    root = etree.fromstring(retarget(SOURCE, Destination()))
    assert root.find("cputune") is None
    assert root.find("numatune") is None
    assert root.xpath("string(//interface/target/@dev)") == "tap0"


def test_the_same_destination_gives_the_same_bytes() -> None:
    once = retarget(SOURCE, Destination())
    assert retarget(once, Destination()) == once


def test_a_disk_that_is_copied_elsewhere_is_made_of_that_and_stays_as_large() -> None:
    xml = SOURCE.replace(
        "<disk type='file'><source file='/data/a/disk.img'/><target dev='vda'/></disk>",
        "<disk type='file' device='disk'>"
        "<driver name='qemu' type='raw' cache='none' io='native' discard='unmap'/>"
        "<source file='/data/a/disk.img'>"
        "<slices><slice type='storage' offset='0' size='512'/></slices></source>"
        "<target dev='vda' bus='virtio'/><serial>S</serial><alias name='ua-data'/></disk>",
    )
    plan = DiskPlan(name="data", device="disk", bus="virtio", target="vda", cache="writethrough")
    device = replace(plan, source=DiskSource(path="/dev/vg/data", block=True))
    result = retarget(xml, Destination(sources={"data": NewSource(disk=device, size=1024)}))
    (disk,) = read_domain(result).disks
    assert (disk.type, disk.source, disk.slice, disk.target) == ("block", "/dev/vg/data", 1024, "vda")
    root = etree.fromstring(result)
    (driver,) = root.iterfind("devices/disk/driver")
    assert sorted(driver.items()) == [("cache", "writethrough"), ("name", "qemu"), ("type", "raw")]
    assert root.findtext("devices/disk/serial") == "S"
    file = replace(plan, source=DiskSource(path="/mnt/disk.img"), io="threads", discard=True)
    result = retarget(result, Destination(sources={"data": NewSource(disk=file)}))
    (disk,) = read_domain(result).disks
    assert (disk.type, disk.source, disk.slice) == ("file", "/mnt/disk.img", 0)
    (driver,) = etree.fromstring(result).iterfind("devices/disk/driver")
    assert (driver.get("io"), driver.get("discard")) == ("threads", "unmap")


def test_a_disk_that_is_being_copied_on_its_node_is_seen() -> None:
    xml = SOURCE.replace(
        "<target dev='vda'/>",
        "<mirror type='file' job='copy' ready='yes'>"
        "<format type='raw'/><source file='/mnt/new.img'/></mirror>"
        "<target dev='vda'/>",
    )
    (disk,) = read_domain(xml).disks
    assert (disk.source, disk.copy_to, disk.copy_ready) == ("/data/a/disk.img", "/mnt/new.img", "yes")
    (disk,) = read_domain(xml.replace("job='copy'", "job='active-commit'")).disks
    assert (disk.copy_to, disk.copy_ready) == ("", "")
    made = etree.fromstring(copy_xml("/dev/x", block=True, size=7))
    assert (made.get("type"), made.xpath("string(source/@dev)")) == ("block", "/dev/x")
    assert made.xpath("string(source/slices/slice/@size)") == "7"
    plain = etree.fromstring(copy_xml("/mnt/new.img", block=False))
    assert (plain.get("type"), plain.xpath("string(source/@file)")) == ("file", "/mnt/new.img")
    assert plain.find("source/slices") is None
