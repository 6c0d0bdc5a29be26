# SPDX-License-Identifier: Apache-2.0
"""Controllers of the USB, SCSI and virtio-serial buses -> ControllerPlan; PCI ports are in ``pci``. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.plan.context import PlanContext
from launcher.plan.devices.model import ControllerPlan, DevicesPlan


def plan_controllers(context: PlanContext, devices: DevicesPlan) -> tuple[ControllerPlan, ...]:
    """Plan the controllers that ``devices`` need: USB (written even if there is none), SCSI, serial."""
    return tuple(_controllers(context, devices))


def needs_usb(context: PlanContext, devices: DevicesPlan) -> bool:
    """Whether any device of the guest is on USB."""
    return (
        any(device.bus == "usb" for device in devices.inputs)
        or any(disk.bus == "usb" for disk in devices.disks)
        or bool(devices.redirdevs)
        or any(hostdev.usb is not None for hostdev in devices.hostdevs)
    )


def _controllers(context: PlanContext, devices: DevicesPlan) -> Iterator[ControllerPlan]:
    usb = context.arch.usb == "always" or (context.arch.usb == "needed" and needs_usb(context, devices))
    yield ControllerPlan(type="usb", index=0, model="qemu-xhci" if usb else "none")
    # Without a SCSI controller from the start no SCSI disk can be plugged later.
    if not context.devices.disable_hotplug or any(disk.bus == "scsi" for disk in devices.disks):
        yield ControllerPlan(
            type="scsi",
            index=0,
            model=context.scsi_model,
            iommu=context.iommu,
            iothread=context.iothreads.scsi,
            queues=context.iothreads.scsi_queues,
        )
    # Always: the guest agent's channel is on it, and libvirt's own choice would not know iommu.
    if devices.serial is not None or devices.channels:
        yield ControllerPlan(type="virtio-serial", index=0, model=context.virtio_model, iommu=context.iommu)
