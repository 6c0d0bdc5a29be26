# SPDX-License-Identifier: Apache-2.0
"""Each device as it is written down, whole elements at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from lxml import etree

from launcher.domain.devices import DEVICES
from launcher.domain.devices.balloon import balloon
from launcher.domain.devices.channel import channels
from launcher.domain.devices.console import console
from launcher.domain.devices.controller import controllers
from launcher.domain.devices.disk import disks
from launcher.domain.devices.filesystem import filesystems
from launcher.domain.devices.graphics import graphics
from launcher.domain.devices.hostdev import hostdevs
from launcher.domain.devices.input import inputs
from launcher.domain.devices.interface import interfaces
from launcher.domain.devices.panic import panics
from launcher.domain.devices.redirdev import redirdevs
from launcher.domain.devices.rng import rng
from launcher.domain.devices.sound import sound
from launcher.domain.devices.tpm import tpm
from launcher.domain.devices.video import video
from launcher.domain.devices.vsock import vsock
from launcher.domain.devices.watchdog import watchdog
from launcher.domain.element import Element
from launcher.errors import Bug
from launcher.plan.devices import model as m
from launcher.plan.model import (
    BootPlan,
    CPUPlan,
    FeaturesPlan,
    Identity,
    MemoryPlan,
    SysinfoPlan,
    VCPUs,
    VMPlan,
)

Builder = Callable[[VMPlan], Iterator[Element]]
ON_PORT = m.PciAddress(bus=2, slot=0)
ADDRESS = '<address type="pci" domain="0x0000" bus="0x02" slot="0x00" function="0x0"/>'
FILE = m.DiskSource(path="/d/x.qcow2")
NT = "virtio-non-transitional"
COMPACT = etree.XMLParser(remove_blank_text=True)


def plan(devices: m.DevicesPlan) -> VMPlan:
    return VMPlan(
        identity=Identity(
            uid="u", uuid="u", namespace="n", name="n", domain_name="n_n", virt="kvm", arch="x86_64"
        ),
        vcpus=VCPUs(current=1, maximum=1),
        cpu=CPUPlan(mode="host-model", sockets=1, cores=1, threads=1),
        memory=MemoryPlan(size=1),
        boot=BootPlan(machine="q35"),
        features=FeaturesPlan(),
        sysinfo=SysinfoPlan(),
        devices=devices,
    )


def written(builder: Builder, devices: m.DevicesPlan) -> list[str]:
    nodes = [etree.fromstring(node.xml, COMPACT) for node in builder(plan(devices))]
    return [etree.tostring(node, encoding="unicode") for node in nodes]


def assert_written(builder: Builder, devices: m.DevicesPlan, *expected: str) -> None:
    lines = ["".join(line.strip() for line in text.splitlines()) for text in expected]
    assert written(builder, devices) == lines


def test_a_virtio_disk() -> None:
    disk = m.DiskPlan(
        name="root",
        device="disk",
        bus="virtio",
        target="vda",
        source=FILE,
        format="qcow2",
        backing=m.Backing(source=m.DiskSource(path="/dev/base", block=True), format="raw"),
        model=NT,
        address=ON_PORT,
        boot_order=1,
        readonly=True,
        shareable=True,
        serial="S1",
        cache="none",
        io="native",
        discard=True,
        queues=4,
        iothread=2,
        iommu=True,
        block_sizes=m.BlockSizes(logical=512, physical=4096, discard_granularity=0),
    )
    assert_written(
        disks,
        m.DevicesPlan(disks=(disk,)),
        f"""<disk type="file" device="disk" model="{NT}">
        <driver name="qemu" type="qcow2" cache="none" error_policy="stop" io="native" discard="unmap"
 iothread="2" queues="4" iommu="on"/>
        <source file="/d/x.qcow2"/>
        <backingStore type="block"><format type="raw"/><source dev="/dev/base"/><backingStore/></backingStore>
        <target dev="vda" bus="virtio"/>
        <blockio logical_block_size="512" physical_block_size="4096" discard_granularity="0"/>
        <readonly/>
        <shareable/>
        <boot order="1"/>
        <serial>S1</serial>
        <alias name="ua-root"/>
        {ADDRESS}
        </disk>""".replace("\n iothread", " iothread"),
    )


def test_a_lun_with_reservations() -> None:
    lun = m.DiskPlan(
        name="l",
        device="lun",
        bus="scsi",
        target="sdb",
        unit=1,
        source=m.DiskSource(path="/dev/x", block=True),
        error_policy="report",
        reservation_socket="/run/pr.sock",
        reservation_migration=True,
    )
    assert_written(
        disks,
        m.DevicesPlan(disks=(lun,)),
        """<disk type="block" device="lun">
        <driver name="qemu" type="raw" error_policy="report"/>
        <source dev="/dev/x">
        <reservations managed="no" migration="yes">
        <source type="unix" path="/run/pr.sock" mode="client"/>
        </reservations>
        </source>
        <target dev="sdb" bus="scsi"/>
        <alias name="ua-l"/>
        <address type="drive" controller="0" bus="0" unit="1"/>
        </disk>""",
    )


def test_an_empty_drive() -> None:
    drive = m.DiskPlan(name="c", device="cdrom", bus="sata", target="sda", tray="open", readonly=True)
    assert_written(
        disks,
        m.DevicesPlan(disks=(drive,)),
        """<disk type="block" device="cdrom">
        <driver name="qemu" type="raw" error_policy="stop"/>
        <target dev="sda" bus="sata" tray="open"/>
        <readonly/>
        <alias name="ua-c"/>
        </disk>""",
    )


def test_a_disk_on_a_pool_of_threads() -> None:
    disk = m.DiskPlan(name="d", device="disk", bus="virtio", target="vda", source=FILE, iothreads=(1, 2))
    assert_written(
        disks,
        m.DevicesPlan(disks=(disk,)),
        """<disk type="file" device="disk">
        <driver name="qemu" type="raw" error_policy="stop">
        <iothreads><iothread id="1"/><iothread id="2"/></iothreads>
        </driver>
        <source file="/d/x.qcow2"/>
        <target dev="vda" bus="virtio"/>
        <alias name="ua-d"/>
        </disk>""",
    )


def test_controllers() -> None:
    planned = m.DevicesPlan(
        controllers=(
            m.ControllerPlan(type="usb", index=0, model="none"),
            m.ControllerPlan(
                type="scsi", index=0, model=NT, iommu=True, iothread=1, queues=2, address=ON_PORT
            ),
            m.ControllerPlan(type="virtio-serial", index=0, model=NT, iommu=True),
            m.ControllerPlan(type="pci", index=0, model="pcie-root", pcihole64_kib=0),
            m.ControllerPlan(type="pci", index=1, model="pcie-root-port"),
            m.ControllerPlan(type="pci", index=2, model="pcie-root-port", hotplug=False),
        )
    )
    assert_written(
        controllers,
        planned,
        '<controller type="usb" index="0" model="none"/>',
        f"""<controller type="scsi" index="0" model="{NT}">
        <driver queues="2" iothread="1" iommu="on"/>{ADDRESS}</controller>""",
        f'<controller type="virtio-serial" index="0" model="{NT}"><driver iommu="on"/></controller>',
        '<controller type="pci" index="0" model="pcie-root"><pcihole64 unit="KiB">0</pcihole64></controller>',
        '<controller type="pci" index="1" model="pcie-root-port"/>',
        '<controller type="pci" index="2" model="pcie-root-port"><target hotplug="off"/></controller>',
    )


def test_an_interface_on_a_tap() -> None:
    nic = m.InterfacePlan(
        name="n",
        model=NT,
        mac="02:00:00:00:00:01",
        tap="tap0",
        mtu=1400,
        queues=2,
        vhost=True,
        iommu=True,
        rom=False,
        link_down=True,
        boot_order=3,
        acpi_index=4,
        address=ON_PORT,
    )
    assert_written(
        interfaces,
        m.DevicesPlan(interfaces=(nic,)),
        f"""<interface type="ethernet">
        <mac address="02:00:00:00:00:01"/>
        <target dev="tap0" managed="no"/>
        <model type="{NT}"/>
        <driver name="vhost" queues="2" iommu="on"/>
        <link state="down"/>
        <mtu size="1400"/>
        <boot order="3"/>
        <rom enabled="no"/>
        <alias name="ua-n"/>
        <acpi index="4"/>
        {ADDRESS}
        </interface>""",
    )


def test_a_bare_interface() -> None:
    planned = m.DevicesPlan(interfaces=(m.InterfacePlan(name="n", model="e1000"),))
    expected = '<interface type="ethernet"><model type="e1000"/><alias name="ua-n"/></interface>'
    assert_written(interfaces, planned, expected)


@pytest.mark.parametrize(("vhostuser", "kind"), [(True, "vhostuser"), (False, "user")])
def test_an_interface_on_passt(vhostuser: bool, kind: str) -> None:
    passt = m.Passt(
        vhostuser=vhostuser,
        device="eth0",
        log_file="/run/p.log",
        forwards=(
            m.PortForward(
                proto="tcp", ranges=(m.PortRange(start=80), m.PortRange(start=1, end=9, exclude=True))
            ),
            m.PortForward(proto="udp"),
        ),
    )
    assert_written(
        interfaces,
        m.DevicesPlan(interfaces=(m.InterfacePlan(name="n", model=NT, passt=passt),)),
        f"""<interface type="{kind}">
        <source dev="eth0"/>
        <portForward proto="tcp"><range start="80"/><range start="1" end="9" exclude="yes"/></portForward>
        <portForward proto="udp"/>
        <model type="{NT}"/>
        <backend type="passt" logFile="/run/p.log"/>
        <alias name="ua-n"/>
        </interface>""",
    )


def test_host_devices() -> None:
    host = m.PciAddress(domain=1, bus=0x81, slot=0x11, function=2)
    planned = m.DevicesPlan(
        hostdevs=(
            m.HostdevPlan(name="v", alias="sriov-v", pci=host, boot_order=1, address=ON_PORT),
            m.HostdevPlan(name="g", alias="gpu-g", mdev="some-uuid", display=True, ramfb=True),
            m.HostdevPlan(name="u", alias="usb-host-u", usb=(1, 4)),
        )
    )
    assert_written(
        hostdevs,
        planned,
        f"""<hostdev mode="subsystem" type="pci" managed="no">
        <source><address domain="0x0001" bus="0x81" slot="0x11" function="0x2"/></source>
        <boot order="1"/><alias name="ua-sriov-v"/>{ADDRESS}</hostdev>""",
        """<hostdev mode="subsystem" type="mdev" model="vfio-pci" display="on" ramfb="on">
        <source><address uuid="some-uuid"/></source><alias name="ua-gpu-g"/></hostdev>""",
        """<hostdev mode="subsystem" type="usb">
        <source><address bus="1" device="4"/></source><alias name="ua-usb-host-u"/></hostdev>""",
    )


def test_a_host_device_without_an_address_is_our_mistake() -> None:
    with pytest.raises(Bug):
        written(hostdevs, m.DevicesPlan(hostdevs=(m.HostdevPlan(name="g", alias="gpu-g"),)))


SMALL = [
    (
        filesystems,
        m.DevicesPlan(filesystems=(m.FilesystemPlan(name="share", socket="/run/fs.sock", address=ON_PORT),)),
        f"""<filesystem type="mount" accessmode="passthrough"><driver type="virtiofs" queue="1024"/>
        <source socket="/run/fs.sock"/><target dir="share"/>{ADDRESS}</filesystem>""",
    ),
    (
        channels,
        m.DevicesPlan(channels=(m.ChannelPlan(name="a.0"),)),
        '<channel type="unix"><target type="virtio" name="a.0"/></channel>',
    ),
    (
        channels,
        m.DevicesPlan(channels=(m.ChannelPlan(name="a.0", socket="/run/a.sock"),)),
        """<channel type="unix"><source mode="bind" path="/run/a.sock"/>
        <target type="virtio" name="a.0"/></channel>""",
    ),
    (
        tpm,
        m.DevicesPlan(tpm=m.TpmPlan(model="tpm-tis")),
        '<tpm model="tpm-tis"><backend type="emulator" version="2.0"/></tpm>',
    ),
    (
        tpm,
        m.DevicesPlan(tpm=m.TpmPlan(model="tpm-crb", persistent=True)),
        '<tpm model="tpm-crb"><backend type="emulator" version="2.0" persistent_state="yes"/></tpm>',
    ),
    (
        inputs,
        m.DevicesPlan(inputs=(m.InputPlan(type="keyboard", bus="usb"),)),
        '<input type="keyboard" bus="usb"/>',
    ),
    (
        inputs,
        m.DevicesPlan(
            inputs=(m.InputPlan(name="t", type="tablet", bus="virtio", model="virtio", address=ON_PORT),)
        ),
        f'<input type="tablet" bus="virtio" model="virtio"><alias name="ua-t"/>{ADDRESS}</input>',
    ),
    (
        graphics,
        m.DevicesPlan(graphics=m.GraphicsPlan(socket="/run/vnc.sock")),
        '<graphics type="vnc"><listen type="socket" socket="/run/vnc.sock"/></graphics>',
    ),
    (
        sound,
        m.DevicesPlan(sound=m.SoundPlan(name="s", model="ich9")),
        '<sound model="ich9"><alias name="ua-s"/></sound>',
    ),
    (
        video,
        m.DevicesPlan(video=m.VideoPlan(type="vga", vram_kib=16384)),
        '<video><model type="vga" vram="16384" heads="1"/></video>',
    ),
    (
        video,
        m.DevicesPlan(video=m.VideoPlan(type="bochs")),
        '<video><model type="bochs" heads="1"/></video>',
    ),
    (
        redirdevs,
        m.DevicesPlan(redirdevs=(m.RedirdevPlan(socket="/run/r.sock"),)),
        '<redirdev bus="usb" type="unix"><source mode="bind" path="/run/r.sock"/></redirdev>',
    ),
    (
        watchdog,
        m.DevicesPlan(watchdog=m.WatchdogPlan(name="w", model="i6300esb", action="reset", address=ON_PORT)),
        f'<watchdog model="i6300esb" action="reset"><alias name="ua-w"/>{ADDRESS}</watchdog>',
    ),
    (balloon, m.DevicesPlan(balloon=m.BalloonPlan(model="none")), '<memballoon model="none"/>'),
    (
        balloon,
        m.DevicesPlan(
            balloon=m.BalloonPlan(
                model=NT, free_page_reporting=False, stats_period_s=10, iommu=True, address=ON_PORT
            )
        ),
        f"""<memballoon model="{NT}" freePageReporting="off"><stats period="10"/><driver iommu="on"/>
        {ADDRESS}</memballoon>""",
    ),
    (
        rng,
        m.DevicesPlan(rng=m.RngPlan(model=NT, iommu=True, address=ON_PORT)),
        f"""<rng model="{NT}"><backend model="random">/dev/urandom</backend><driver iommu="on"/>
        {ADDRESS}</rng>""",
    ),
    (panics, m.DevicesPlan(panics=(m.PanicPlan(),)), "<panic/>"),
    (panics, m.DevicesPlan(panics=(m.PanicPlan(model="hyperv"),)), '<panic model="hyperv"/>'),
    (
        vsock,
        m.DevicesPlan(vsock=m.VsockPlan(model=NT, cid=5, address=ON_PORT)),
        f'<vsock model="{NT}"><cid auto="no" address="5"/>{ADDRESS}</vsock>',
    ),
    (
        vsock,
        m.DevicesPlan(vsock=m.VsockPlan(model="virtio")),
        '<vsock model="virtio"><cid auto="yes"/></vsock>',
    ),
]


@pytest.mark.parametrize(("builder", "devices", "expected"), SMALL)
def test_small_devices(builder: Builder, devices: m.DevicesPlan, expected: str) -> None:
    assert_written(builder, devices, expected)


def test_the_first_serial_port_and_its_console() -> None:
    assert_written(
        console,
        m.DevicesPlan(serial=m.SerialPlan(socket="/run/s.sock", log="/var/s.log")),
        """<serial type="unix"><source mode="bind" path="/run/s.sock"/><log file="/var/s.log" append="on"/>
        <target port="0"/></serial>""",
        '<console type="pty"><target type="serial" port="0"/></console>',
    )
    assert_written(
        console,
        m.DevicesPlan(serial=m.SerialPlan(socket="/run/s.sock")),
        '<serial type="unix"><source mode="bind" path="/run/s.sock"/><target port="0"/></serial>',
        '<console type="pty"><target type="serial" port="0"/></console>',
    )


@pytest.mark.parametrize("builder", DEVICES)
def test_what_is_not_planned_is_not_written(builder: Builder) -> None:
    assert written(builder, m.DevicesPlan()) == []
