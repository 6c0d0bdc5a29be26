# SPDX-License-Identifier: Apache-2.0
"""Whether this host offers the devices of a plan. Pure.

Asked are libvirt's domain capabilities, and the programs and device files without which a guest would fail
only when it starts.
"""

from __future__ import annotations

from collections.abc import Iterator

from launcher.plan.devices.model import DevicesPlan
from launcher.plan.facts import DomainCaps, NodeFacts
from launcher.plan.refusals import Finding

_DEVICES = "spec.domain.devices"
_BY_LIBVIRT = "libvirt or QEMU here does not offer it"


def device_findings(facts: NodeFacts, caps: DomainCaps, devices: DevicesPlan) -> tuple[Finding, ...]:
    """Every device that the host is known to lack."""
    return (
        *_disks(caps, devices),
        *_tpm(facts, caps, devices),
        *_filesystems(facts, caps, devices),
        *_interfaces(facts, devices),
        *_display(caps, devices),
        *_small(caps, devices),
        *_vsock(facts, devices),
        *_from_host(caps, devices),
    )


def _disks(caps: DomainCaps, devices: DevicesPlan) -> Iterator[Finding]:
    for disk in devices.disks:
        field = f"{_DEVICES}.disks[{disk.name}]"
        if caps.denies("disk.diskDevice", disk.device):
            yield Finding(capability=f"disks of kind {disk.device}", field=field, why=_BY_LIBVIRT)
        if caps.denies("disk.bus", disk.bus):
            yield Finding(capability=f"disk bus {disk.bus}", field=f"{field}.bus", why=_BY_LIBVIRT)
        if disk.tracking and disk.source and disk.source.block and not disk.data_store:
            yield Finding(
                capability="changedBlockTracking of a block device",
                field=f"{field}.changedBlockTracking",
                why="libvirt before 10.10 hands no block device to QEMU that is the data of another image",
                hint="use a newer libvirt, or a claim with an image file",
            )


def _tpm(facts: NodeFacts, caps: DomainCaps, devices: DevicesPlan) -> Iterator[Finding]:
    if devices.tpm is None:
        return
    field = f"{_DEVICES}.tpm"
    if facts.programs.swtpm == "":
        yield Finding(
            capability="swtpm", field=field, why="it is not installed", hint="install swtpm and swtpm-tools"
        )
    elif "tpm" in caps.unsupported_devices or caps.denies("tpm.backendModel", "emulator"):
        yield Finding(capability="an emulated TPM", field=field, why=_BY_LIBVIRT)
    elif caps.denies("tpm.model", devices.tpm.model):
        yield Finding(capability=f"TPM model {devices.tpm.model}", field=field, why=_BY_LIBVIRT)


def _filesystems(facts: NodeFacts, caps: DomainCaps, devices: DevicesPlan) -> Iterator[Finding]:
    if not devices.filesystems:
        return
    field = f"{_DEVICES}.filesystems[{devices.filesystems[0].name}]"
    if facts.programs.virtiofsd == "":
        yield Finding(
            capability="virtiofsd", field=field, why="it is not installed", hint="install virtiofsd"
        )
    elif "filesystem" in caps.unsupported_devices or caps.denies("filesystem.driverType", "virtiofs"):
        yield Finding(capability="virtiofs", field=field, why=_BY_LIBVIRT)


def _interfaces(facts: NodeFacts, devices: DevicesPlan) -> Iterator[Finding]:
    for interface in devices.interfaces:
        if interface.passt is not None and facts.programs.passt == "":
            yield Finding(
                capability="passt",
                field=f"{_DEVICES}.interfaces[{interface.name}]",
                why="it is not installed",
                hint="install passt",
            )


def _display(caps: DomainCaps, devices: DevicesPlan) -> Iterator[Finding]:
    if devices.graphics is not None and caps.denies("graphics.type", "vnc"):
        yield Finding(capability="VNC", field=f"{_DEVICES}.autoattachGraphicsDevice", why=_BY_LIBVIRT)
    if devices.video is not None and caps.denies("video.modelType", devices.video.type):
        yield Finding(
            capability=f"video type {devices.video.type}",
            field=f"{_DEVICES}.video.type",
            why=f"libvirt and QEMU here offer {', '.join(caps.enums['video.modelType'])}",
        )


def _small(caps: DomainCaps, devices: DevicesPlan) -> Iterator[Finding]:
    if devices.rng is not None and (
        "rng" in caps.unsupported_devices or caps.denies("rng.model", devices.rng.model)
    ):
        yield Finding(capability=f"rng model {devices.rng.model}", field=f"{_DEVICES}.rng", why=_BY_LIBVIRT)
    for index, panic in enumerate(devices.panics):
        if "panic" in caps.unsupported_devices or (
            panic.model is not None and caps.denies("panic.model", panic.model)
        ):
            yield Finding(
                capability=f"panic device {panic.model or ''}".strip(),
                field=f"{_DEVICES}.panicDevices[{index}]",
                why=_BY_LIBVIRT,
            )


def _vsock(facts: NodeFacts, devices: DevicesPlan) -> Iterator[Finding]:
    if devices.vsock is not None and facts.devices.vhost_vsock is False:
        yield Finding(
            capability="/dev/vhost-vsock",
            field=f"{_DEVICES}.autoattachVSOCK",
            why="it does not open",
            hint="load the module vhost_vsock",
        )


def _from_host(caps: DomainCaps, devices: DevicesPlan) -> Iterator[Finding]:
    if devices.redirdevs and ("redirdev" in caps.unsupported_devices or caps.denies("redirdev.bus", "usb")):
        yield Finding(capability="USB redirection", field=f"{_DEVICES}.clientPassthrough", why=_BY_LIBVIRT)
    for hostdev in devices.hostdevs:
        # libvirt does not list mediated devices, and takes them.
        kind = "pci" if hostdev.pci is not None else "usb" if hostdev.usb is not None else ""
        if kind and caps.denies("hostdev.subsysType", kind):
            yield Finding(
                capability=f"passing through {kind} devices",
                field=f"{_DEVICES}: {hostdev.name}",
                why=_BY_LIBVIRT,
            )
