# SPDX-License-Identifier: Apache-2.0
"""All devices together: what a bare manifest gets, and that a plan survives being written down."""

from __future__ import annotations

import msgspec
import pytest
from device_contexts import RUN, STATE, context

from launcher.plan.devices.assembly import plan_devices
from launcher.plan.devices.model import (
    BalloonPlan,
    ChannelPlan,
    ControllerPlan,
    DevicesPlan,
    GraphicsPlan,
    InputPlan,
    SerialPlan,
    VideoPlan,
)

EVERYTHING = """
domain:
  cpu: {cores: 2}
  ioThreadsPolicy: auto
  launchSecurity: {sev: {}}
  devices:
    networkInterfaceMultiqueue: true
    blockMultiQueue: true
    rng: {}
    tpm: {persistent: true}
    sound: {name: snd}
    watchdog: {name: w}
    autoattachVSOCK: true
    clientPassthrough: {}
    downwardMetrics: {}
    panicDevices: [{model: isa}, {model: pvpanic}]
    inputs: [{name: t, type: tablet, bus: usb}]
    filesystems: [{name: share, virtiofs: {}}]
    gpus: [{name: g, deviceName: v/gpu}, {name: missing, deviceName: v/none}]
    hostDevices: [{name: u, deviceName: usb}, {name: m, deviceName: mdev}]
    interfaces:
    - {name: n, masquerade: {}, acpiIndex: 1}
    - {name: p, passtBinding: {}, ports: [{port: 80}]}
    - {name: v, sriov: {}}
    disks:
    - {name: a, disk: {bus: virtio}, blockSize: {custom: {logical: 512, physical: 512}}}
    - {name: l, lun: {bus: scsi, reservation: true}, errorPolicy: report}
    - {name: c, cdrom: {bus: sata}}
volumes:
- {name: a, containerDisk: {image: x}}
- {name: l, persistentVolumeClaim: {claimName: blk}}
- {name: share, persistentVolumeClaim: {claimName: dir}}
"""
HANDED_IN = {
    "devices": {"v/gpu": ["0000:81:00.0"], "usb": ["1:2"], "mdev": ["5d307ca9-b3ef-428c-8861-06e72d69f223"]},
    "virtual_functions": {"v": "0000:82:00.1"},
    "claims": {"blk": {"path": "/dev/vg/l", "block": True}},
    "taps": {"n": "tap0"},
    "macs": {"n": "02:00:00:00:00:01"},
    "vsock_cid": 7,
}


def test_a_bare_manifest() -> None:
    planned = plan_devices(context("architecture: s390x"))
    assert planned == DevicesPlan(
        controllers=(
            ControllerPlan(type="usb", index=0, model="none"),
            ControllerPlan(type="scsi", index=0, model="virtio-scsi"),
            ControllerPlan(type="virtio-serial", index=0, model="virtio"),
        ),
        serial=SerialPlan(socket=f"{RUN}/serial0.sock", log=f"{STATE}/serial0.log"),
        channels=(ChannelPlan(name="org.qemu.guest_agent.0"),),
        inputs=(InputPlan(type="keyboard", bus="virtio"),),
        graphics=GraphicsPlan(socket=f"{RUN}/vnc.sock"),
        video=VideoPlan(type="virtio"),
        balloon=BalloonPlan(model="virtio", free_page_reporting=True, stats_period_s=10),
    )


@pytest.mark.parametrize("spec", ["", "architecture: arm64", EVERYTHING])
def test_a_plan_survives_being_written_down(spec: str) -> None:
    planned = plan_devices(context(spec, **HANDED_IN))  # type: ignore[arg-type]
    assert msgspec.json.decode(msgspec.json.encode(planned), type=DevicesPlan) == planned


def test_everything_at_once_is_planned() -> None:
    planned = plan_devices(context(EVERYTHING, **HANDED_IN))  # type: ignore[arg-type]
    absent = [name for name in planned.__struct_fields__ if not getattr(planned, name)]
    assert absent == ["plugins"], "those are the node's configuration's"
    assert [(missing.kind, missing.name) for missing in planned.unbound] == [
        ("claim", "dir"),
        ("device", "v/none"),
    ]
