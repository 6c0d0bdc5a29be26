# SPDX-License-Identifier: Apache-2.0
"""A source's XML becomes its destination's."""

from __future__ import annotations

from lxml import etree

from launcher.domain.read import read_domain
from launcher.domain.retarget import Destination, retarget
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
