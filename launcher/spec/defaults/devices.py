# SPDX-License-Identifier: Apache-2.0
"""Defaults of devices: the interface and the disks that nobody listed, and the fields of those that are."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from launcher.spec.defaults.architectures import Architecture, architecture
from launcher.spec.defaults.rebuild import with_devices, with_spec
from launcher.spec.defaults.settings import DefaultsSettings
from launcher.spec.model import (
    GPU,
    Diag288Watchdog,
    Disk,
    DiskTarget,
    I6300ESBWatchdog,
    Interface,
    InterfaceBridge,
    InterfaceMasquerade,
    Network,
    PodNetwork,
    VirtualMachineInstance,
    Watchdog,
)

WATCHDOG_ACTION = "reset"
# The name that KubeVirt's VM controller gives it.


def pod_interface(vmi: VirtualMachineInstance, settings: DefaultsSettings) -> VirtualMachineInstance:
    """A guest without interfaces and networks gets one of each, unless autoattachPodInterface is off."""
    devices = vmi.spec.domain.devices
    if devices.autoattach_pod_interface is False or devices.interfaces or vmi.spec.networks:
        return vmi
    if settings.pod_binding == "bridge" and settings.bridge_on_pod_network:
        interface = Interface(name="default", bridge=InterfaceBridge())
    else:
        interface = Interface(name="default", masquerade=InterfaceMasquerade())
    vmi = with_devices(vmi, interfaces=(interface,))
    return with_spec(vmi, networks=(Network(name="default", pod=PodNetwork()),))


def volume_disks(vmi: VirtualMachineInstance, _: DefaultsSettings) -> VirtualMachineInstance:
    """A volume that no disk and no filesystem uses gets a disk; memoryDump and containerPath never do."""
    devices = vmi.spec.domain.devices
    used = {disk.name for disk in devices.disks} | {filesystem.name for filesystem in devices.filesystems}
    added = []
    for volume in vmi.spec.volumes:
        if volume.name in used or volume.memory_dump is not None or volume.container_path is not None:
            continue
        used.add(volume.name)
        added.append(Disk(name=volume.name))
    return with_devices(vmi, disks=devices.disks + tuple(added)) if added else vmi


def disk_fields(vmi: VirtualMachineInstance, _: DefaultsSettings) -> VirtualMachineInstance:
    """A disk is a plain disk on the architecture's bus and stops the guest on errors; a cdrom is readonly.

    The disk of downwardMetrics is on virtio, where guests look for it.
    """
    disks = vmi.spec.domain.devices.disks
    known = architecture(vmi.spec.architecture)
    buses = {volume.name: "virtio" for volume in vmi.spec.volumes if volume.downward_metrics is not None}
    changed = tuple(_disk(disk, known, buses.get(disk.name, known.disk_bus)) for disk in disks)
    return vmi if changed == disks else with_devices(vmi, disks=changed)


def input_bus(vmi: VirtualMachineInstance, _: DefaultsSettings) -> VirtualMachineInstance:
    """An input device is on USB, on s390x on virtio."""
    inputs = vmi.spec.domain.devices.inputs
    if all(item.bus for item in inputs):
        return vmi
    bus = architecture(vmi.spec.architecture).input_bus
    return with_devices(vmi, inputs=tuple(item if item.bus else replace(item, bus=bus) for item in inputs))


def small_devices(vmi: VirtualMachineInstance, _: DefaultsSettings) -> VirtualMachineInstance:
    """A sound device is an ich9, a TPM is enabled, and a vGPU display is on."""
    devices = vmi.spec.domain.devices
    changes: dict[str, Any] = {}
    if devices.sound is not None and not devices.sound.model:
        changes["sound"] = replace(devices.sound, model="ich9")
    if devices.tpm is not None and devices.tpm.enabled is None:
        changes["tpm"] = replace(devices.tpm, enabled=True)
    if any(gpu.virtual_gpu_options is not None for gpu in devices.gpus):
        gpus = tuple(_gpu(gpu) for gpu in devices.gpus)
        if gpus != devices.gpus:
            changes["gpus"] = gpus
    return with_devices(vmi, **changes) if changes else vmi


def watchdog(vmi: VirtualMachineInstance, _: DefaultsSettings) -> VirtualMachineInstance:
    """A watchdog is an i6300esb, on s390x a diag288, and resets the guest."""
    dog = vmi.spec.domain.devices.watchdog
    if dog is None:
        return vmi
    after = _watchdog(dog, architecture(vmi.spec.architecture).watchdog)
    return vmi if after == dog else with_devices(vmi, watchdog=after)


def _watchdog(dog: Watchdog, model: str) -> Watchdog:
    if dog.i6300esb is None and dog.diag288 is None:
        if model == "i6300esb":
            dog = replace(dog, i6300esb=I6300ESBWatchdog())
        elif model == "diag288":
            dog = replace(dog, diag288=Diag288Watchdog())
    if dog.i6300esb is not None and not dog.i6300esb.action:
        dog = replace(dog, i6300esb=I6300ESBWatchdog(action=WATCHDOG_ACTION))
    if dog.diag288 is not None and not dog.diag288.action:
        dog = replace(dog, diag288=Diag288Watchdog(action=WATCHDOG_ACTION))
    return dog


def _disk(disk: Disk, known: Architecture, bus: str) -> Disk:
    changes: dict[str, Any] = {}
    if disk.disk is None and disk.cdrom is None and disk.lun is None:
        changes["disk"] = DiskTarget(bus=bus)
    elif disk.disk is not None and not disk.disk.bus:
        changes["disk"] = replace(disk.disk, bus=bus)
    if disk.lun is not None and not disk.lun.bus:
        changes["lun"] = replace(disk.lun, bus=known.lun_bus)
    if disk.cdrom is not None:
        cdrom = replace(
            disk.cdrom,
            bus=disk.cdrom.bus or known.cdrom_bus,
            readonly=True if disk.cdrom.readonly is None else disk.cdrom.readonly,
            tray=disk.cdrom.tray or "closed",
        )
        if cdrom != disk.cdrom:
            changes["cdrom"] = cdrom
    if not disk.error_policy:
        changes["error_policy"] = "stop"
    return replace(disk, **changes) if changes else disk


def _gpu(gpu: GPU) -> GPU:
    options = gpu.virtual_gpu_options
    if options is None or options.display is None:
        return gpu
    display = options.display
    if display.enabled is None:
        display = replace(display, enabled=True)
    if display.ramfb is not None and display.ramfb.enabled is None:
        display = replace(display, ramfb=replace(display.ramfb, enabled=True))
    return replace(gpu, virtual_gpu_options=replace(options, display=display))
