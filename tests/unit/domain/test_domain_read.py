# SPDX-License-Identifier: Apache-2.0
"""Live XML becomes a view."""

from __future__ import annotations

import pytest

from launcher.domain.read import DiskView, InterfaceView, read_domain
from launcher.errors import InvalidRequest
from launcher.units import GIB

LIVE = """
<domain type='qemu' id='3'>
  <name>lab_guest</name><uuid>5d307ca9-b3ef-428c-8861-06e72d69f223</uuid>
  <metadata><launcher:vmi xmlns:launcher="https://launcher.dev/vmi/1.0">
    <launcher:uid>u-1</launcher:uid><launcher:namespace>lab</launcher:namespace><launcher:name>guest</launcher:name>
  </launcher:vmi></metadata>
  <maxMemory slots='1' unit='KiB'>4194304</maxMemory><memory unit='KiB'>1048576</memory>
  <vcpu placement='static' current='1'>4</vcpu>
  <vcpus><vcpu id='0' enabled='yes'/><vcpu id='1' enabled='yes'/>
    <vcpu id='2' enabled='no'/><vcpu id='3' enabled='no'/></vcpus>
  <devices>
    <disk type='file' device='disk'><driver name='qemu' type='qcow2'/><source file='/d/a.qcow2'/>
      <target dev='vda' bus='virtio'/><shareable/><alias name='ua-a'/></disk>
    <disk type='block' device='cdrom'><source dev='/dev/sr0'/>
      <target dev='sda' bus='sata'/><readonly/><alias name='sata0-0-0'/></disk>
    <interface type='ethernet'><mac address='52:54:00:00:00:01'/><target dev='tap0' managed='no'/>
      <model type='virtio'/>
      <driver queues='2'/><link state='down'/><alias name='ua-default'/></interface>
    <channel type='unix'><target type='virtio' name='org.qemu.guest_agent.0' state='connected'/></channel>
  </devices>
</domain>
"""


def test_a_domain_of_ours_is_read() -> None:
    view = read_domain(LIVE)
    assert (view.name, view.uuid) == ("lab_guest", "5d307ca9-b3ef-428c-8861-06e72d69f223")
    assert (view.uid, view.instance) == ("u-1", "lab/guest")
    assert (view.memory, view.max_memory) == (GIB, 4 * GIB)
    assert (view.vcpus, view.max_vcpus) == (2, 4)
    assert view.agent_connected is True


def test_disks_and_interfaces_are_named_as_in_the_manifest() -> None:
    view = read_domain(LIVE)
    assert view.disks == (
        DiskView(
            alias="a",
            target="vda",
            bus="virtio",
            source="/d/a.qcow2",
            type="file",
            format="qcow2",
            device="disk",
            readonly=False,
            shareable=True,
        ),
        DiskView(
            alias="sata0-0-0",
            target="sda",
            bus="sata",
            source="/dev/sr0",
            type="block",
            format="",
            device="cdrom",
            readonly=True,
            shareable=False,
        ),
    )
    assert view.interfaces == (
        InterfaceView(
            alias="default", mac="52:54:00:00:00:01", target="tap0", model="virtio", queues=2, link="down"
        ),
    )


def test_a_foreign_domain_is_nobodys() -> None:
    view = read_domain(
        "<domain><name>x</name><memory unit='GiB'>1</memory><vcpu current='2'>4</vcpu></domain>"
    )
    assert (view.uid, view.instance, view.vcpus, view.agent_connected) == ("", "", 2, None)
    assert view.memory == GIB


def test_other_documents_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="<domain> is expected"):
        read_domain("<network/>")
