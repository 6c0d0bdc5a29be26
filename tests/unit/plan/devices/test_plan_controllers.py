# SPDX-License-Identifier: Apache-2.0
"""Controllers of USB, SCSI and virtio-serial."""

from __future__ import annotations

import pytest
from device_contexts import context, devices

from launcher.plan.devices.assembly import plan_devices
from launcher.plan.devices.model import ControllerPlan

VOLUMES = "\nvolumes: [{name: a, emptyDisk: {capacity: 1Gi}}]"


def controllers(spec: str, **arguments: object) -> dict[str, ControllerPlan]:
    planned = plan_devices(context(spec, **arguments))  # type: ignore[arg-type]
    return {controller.type: controller for controller in planned.controllers if controller.type != "pci"}


@pytest.mark.parametrize(
    ("text", "model"),
    [
        ("{}", "none"),
        ("{inputs: [{name: t, type: tablet}]}", "qemu-xhci"),
        ("{inputs: [{name: t, type: tablet, bus: virtio}]}", "none"),
        ("{disks: [{name: a, disk: {bus: usb}}]}", "qemu-xhci"),
        ("{disks: [{name: a, cdrom: {bus: usb}}]}", "qemu-xhci"),
        ("{disks: [{name: a, lun: {bus: usb}}]}", "qemu-xhci"),
        ("{clientPassthrough: {}}", "qemu-xhci"),
        ("{hostDevices: [{name: u, deviceName: usb}]}", "qemu-xhci"),
        ("{hostDevices: [{name: u, deviceName: pci}]}", "none"),
    ],
)
def test_usb_is_there_when_something_needs_it(text: str, model: str) -> None:
    pools = {"usb": ["1:2"], "pci": ["0000:81:00.0"]}
    assert controllers(devices(text) + VOLUMES, devices=pools)["usb"].model == model


@pytest.mark.parametrize(("arch", "model"), [("arm64", "qemu-xhci"), ("s390x", "none")])
def test_other_architectures_always_or_never_have_usb(arch: str, model: str) -> None:
    text = "{disks: [{name: a, disk: {bus: usb}}]}" if arch == "s390x" else "{}"
    assert controllers(devices(text) + VOLUMES + f"\narchitecture: {arch}")["usb"].model == model


@pytest.mark.parametrize(
    ("text", "there"),
    [
        ("{}", True),
        ("{disableHotplug: true}", False),
        ("{disableHotplug: true, disks: [{name: a, cdrom: {bus: scsi}}]}", True),
        ("{disableHotplug: true, disks: [{name: a, disk: {bus: virtio}}]}", False),
    ],
)
def test_scsi_is_there_for_disks_that_are_or_may_come(text: str, there: bool) -> None:
    assert ("scsi" in controllers(devices(text) + VOLUMES)) is there


@pytest.mark.parametrize(
    ("arch", "transitional", "scsi", "serial"),
    [
        ("amd64", False, "virtio-non-transitional", "virtio-non-transitional"),
        ("arm64", True, "virtio-transitional", "virtio-transitional"),
        ("s390x", True, "virtio-scsi", "virtio"),
    ],
)
def test_models(arch: str, transitional: bool, scsi: str, serial: str) -> None:
    text = devices(f"{{useVirtioTransitional: {str(transitional).lower()}}}") + f"\narchitecture: {arch}"
    found = controllers(text)
    assert (found["scsi"].model, found["virtio-serial"].model) == (scsi, serial)


def test_hidden_memory_needs_the_iommu() -> None:
    found = controllers("domain: {launchSecurity: {sev: {}}}")
    assert [found[bus].iommu for bus in ("usb", "scsi", "virtio-serial")] == [False, True, True]
    assert not controllers("domain: {launchSecurity: {tdx: {}}}")["scsi"].iommu


def test_scsi_disks_with_a_thread_of_their_own_get_the_controllers() -> None:
    text = """
domain:
  cpu: {cores: 3}
  ioThreadsPolicy: shared
  devices: {disks: [{name: a, disk: {bus: scsi}, dedicatedIOThread: true}, {name: b, disk: {bus: virtio}}]}
volumes: [{name: a, emptyDisk: {capacity: 1Gi}}, {name: b, emptyDisk: {capacity: 1Gi}}]
"""
    scsi = controllers(text)["scsi"]
    assert (scsi.iothread, scsi.queues) == (1, 3)


def test_the_agents_channel_has_a_controller_without_a_serial_console_too() -> None:
    assert "virtio-serial" in controllers(devices("{autoattachSerialConsole: false}"))
