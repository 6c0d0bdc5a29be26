# SPDX-License-Identifier: Apache-2.0
"""Defaults of what an instance is: namespace, architecture, machine, firmware. Nothing here is random."""

from __future__ import annotations

import uuid

from msgspec.structs import replace

from launcher.spec.defaults.architectures import architecture
from launcher.spec.defaults.rebuild import with_domain, with_spec
from launcher.spec.defaults.settings import DefaultsSettings
from launcher.spec.derived import derived_uuid
from launcher.spec.model import EFI, Bootloader, Firmware, Machine, VirtualMachineInstance

# The namespace (RFC 9562, version 5) of the firmware UUIDs that are derived here. Ours, drawn once; a change
# would give every guest without an own UUID another hardware identity at its next start.
UUID_NAMESPACE = uuid.UUID("3d7ca984-db4f-430a-8610-f076ef4373e4")


def namespace(vmi: VirtualMachineInstance, _: DefaultsSettings) -> VirtualMachineInstance:
    """An instance without a namespace is in ``default``."""
    if vmi.metadata is None or vmi.metadata.namespace:
        return vmi
    return replace(vmi, metadata=replace(vmi.metadata, namespace="default"))


def guest_architecture(vmi: VirtualMachineInstance, settings: DefaultsSettings) -> VirtualMachineInstance:
    """A guest without an architecture has that of the node."""
    if vmi.spec.architecture:
        return vmi
    return with_spec(vmi, architecture=settings.architecture)


def machine_type(vmi: VirtualMachineInstance, _: DefaultsSettings) -> VirtualMachineInstance:
    """The machine type is q35 on amd64, virt on arm64, s390-ccw-virtio on s390x."""
    machine = vmi.spec.domain.machine
    if machine is not None and machine.type:
        return vmi
    return with_domain(vmi, machine=Machine(type=architecture(vmi.spec.architecture).machine))


def bootloader(vmi: VirtualMachineInstance, _: DefaultsSettings) -> VirtualMachineInstance:
    """arm64 boots by UEFI; UEFI means secure boot on amd64 and no secure boot on arm64 if it does not say."""
    known = architecture(vmi.spec.architecture)
    firmware = vmi.spec.domain.firmware or Firmware()
    loader = firmware.bootloader or Bootloader()
    efi = loader.efi
    if efi is None:
        if not known.efi or loader.bios is not None:
            return vmi
        efi = EFI()
    elif efi.secure_boot is not None:
        return vmi
    efi = replace(efi, secure_boot=known.secure_boot)
    return with_domain(vmi, firmware=replace(firmware, bootloader=replace(loader, efi=efi)))


def firmware_uuid(vmi: VirtualMachineInstance, _: DefaultsSettings) -> VirtualMachineInstance:
    """A guest without a firmware UUID has one derived from namespace, name and uid: always the same."""
    firmware = vmi.spec.domain.firmware or Firmware()
    if firmware.uuid:
        return vmi
    meta = vmi.metadata
    parts = (
        ("default", "", "")
        if meta is None
        else (meta.namespace or "default", meta.name or "", meta.uid or "")
    )
    # A name with lone surrogates is refused elsewhere, but must not break this step.
    written = "/".join(parts).encode(errors="replace").decode()
    return with_domain(vmi, firmware=replace(firmware, uuid=derived_uuid(UUID_NAMESPACE, written)))
