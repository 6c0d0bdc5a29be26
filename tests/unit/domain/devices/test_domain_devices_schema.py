# SPDX-License-Identifier: Apache-2.0
"""Documents with many devices, planned for the oldest libvirt, against the schema of the installed one."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import msgspec
import pytest
from lxml import etree

from launcher.domain.build import build
from launcher.plan.allocations import Allocations
from launcher.plan.facts import NodeFacts, version
from launcher.plan.make import make_plan
from launcher.plan.settings import PlanSettings
from launcher.spec.codec import dec_hook
from launcher.spec.model import VirtualMachineInstance

SCHEMA = Path("/usr/share/libvirt/schemas/domain.rng")
UUID = "5d307ca9-b3ef-428c-8861-06e72d69f223"
HANDED_IN = {
    "uid": UUID,
    "uuid": UUID,
    "taps": {"n": "tap0", "e": "tap1"},
    "macs": {"n": "02:00:00:00:00:01"},
    "claims": {"blk": {"path": "/dev/vg/l", "block": True}, "dir": {"path": "/claims/dir"}},
    "devices": {"gpu": ["0000:81:00.0"], "mdev": [UUID], "usb": ["1:2", "1:3"]},
    "virtual_functions": {"v": "0000:82:00.1", "w": "0000:82:00.2"},
    "vsock_cid": 7,
}

DISKS = """
disks:
- {name: a, disk: {bus: virtio}, bootOrder: 1, serial: A.1_b, dedicatedIOThread: true, errorPolicy: enospace}
- {name: b, disk: {bus: scsi}, blockSize: {custom: {logical: 512, physical: 4096, discardGranularity: 4096}}}
- {name: c, disk: {bus: sata}, cache: writeback, io: threads}
- {name: d, disk: {bus: usb, readonly: true}}
- {name: e, disk: {bus: virtio, pciAddress: '0000:05:00.0'}, shareable: true}
- {name: f, lun: {bus: scsi, reservation: true}}
- {name: g, cdrom: {bus: sata, tray: open}}
- {name: h, cdrom: {bus: scsi}}
"""
VOLUMES = """
- {name: a, containerDisk: {image: x}}
- {name: b, ephemeral: {persistentVolumeClaim: {claimName: blk}}}
- {name: c, hostDisk: {path: /d.img, type: Disk}}
- {name: d, emptyDisk: {capacity: 1Gi}}
- {name: e, persistentVolumeClaim: {claimName: dir}}
- {name: f, persistentVolumeClaim: {claimName: blk}}
- {name: g, configMap: {name: x}}
- {name: share, persistentVolumeClaim: {claimName: dir}}
"""
INTERFACES = """
interfaces:
- {name: n, masquerade: {}, bootOrder: 2, acpiIndex: 3}
- {name: e, bridge: {}, model: e1000e, state: down}
- {name: p, passtBinding: {}, ports: [{port: 80}, {port: 53, protocol: UDP}]}
- {name: v, sriov: {}}
- {name: w, sriov: {}, macAddress: '02:00:00:00:00:01'}
"""
SMALL = """
rng: {}
tpm: {persistent: true}
sound: {name: snd}
watchdog: {name: w}
autoattachVSOCK: true
clientPassthrough: {}
downwardMetrics: {}
blockMultiQueue: true
networkInterfaceMultiqueue: true
panicDevices: [{model: isa}, {model: hyperv}]
inputs: [{name: t, type: tablet, bus: usb}, {name: u, type: tablet, bus: virtio}]
filesystems: [{name: share, virtiofs: {}}]
gpus: [{name: g, deviceName: gpu}, {name: m, deviceName: mdev}]
hostDevices: [{name: u, deviceName: usb}]
"""


def document(
    *devices: str, domain: dict[str, object] | None = None, arch: str = "amd64", release: int, **meta: object
) -> str:
    parts: dict[str, object] = {}
    for text in devices:
        parts |= msgspec.yaml.decode(text)
    raw = {
        "metadata": {"name": "guest", "namespace": "lab", **meta},
        "spec": {
            "architecture": arch,
            "domain": {"memory": {"guest": "3Gi"}, "cpu": {"cores": 2}, "devices": parts, **(domain or {})},
            "volumes": msgspec.yaml.decode(VOLUMES),
        },
    }
    vmi = msgspec.convert(raw, VirtualMachineInstance, dec_hook=dec_hook)
    facts = NodeFacts(arch=arch, libvirt_version=release, qemu_version=version(7, 2))
    return build(make_plan(vmi, facts, msgspec.convert(HANDED_IN, Allocations), PlanSettings()))


@cache
def schema() -> etree.RelaxNG:
    return etree.RelaxNG(etree.parse(SCHEMA))


def assert_valid(text: str) -> None:
    checked = schema()
    assert checked.validate(etree.fromstring(text)), f"{checked.error_log}\n{text}"


OLDEST = version(9, 0)


@pytest.mark.parametrize(
    "domain",
    [
        {},
        {"ioThreadsPolicy": "auto"},
        {"ioThreadsPolicy": "supplementalPool", "ioThreads": {"supplementalPoolThreadCount": 2}},
        {"launchSecurity": {"sev": {}}},
    ],
)
def test_an_x86_guest_with_every_device(domain: dict[str, object]) -> None:
    assert_valid(document(DISKS, INTERFACES, SMALL, domain=domain, release=OLDEST))


@pytest.mark.parametrize(
    "annotation",
    [
        "kubevirt.io/placePCIDevicesOnRootComplex",
        "kubevirt.io/disablePCIHole64",
        "kubevirt.io/free-page-reporting-disabled",
    ],
)
def test_annotations(annotation: str) -> None:
    assert_valid(document(DISKS, INTERFACES, SMALL, release=OLDEST, annotations={annotation: "true"}))


def test_transitional_devices() -> None:
    assert_valid(document(DISKS, INTERFACES, SMALL, "useVirtioTransitional: true", release=OLDEST))


def test_a_guest_with_everything_turned_off() -> None:
    off = """
autoattachGraphicsDevice: false
autoattachMemBalloon: false
autoattachSerialConsole: false
disableHotplug: true
"""
    assert_valid(document(off, release=OLDEST))


@pytest.mark.parametrize("arch", ["arm64", "s390x"])
def test_other_architectures(arch: str) -> None:
    disks = "disks: [{name: a, disk: {bus: virtio}}, {name: h, cdrom: {bus: scsi}}]"
    assert_valid(document(disks, INTERFACES, "{rng: {}, tpm: {}}", arch=arch, release=OLDEST))
