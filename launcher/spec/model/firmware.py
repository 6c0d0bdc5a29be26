# SPDX-License-Identifier: Apache-2.0
"""Boot firmware, direct kernel boot, ACPI tables and the SMBIOS chassis."""

from __future__ import annotations

from typing import Literal

from launcher.spec.model.base import Model


class ACPI(Model, frozen=True, kw_only=True):
    """API type ``ACPI``.

    Tables handed to the guest; each names a volume that holds it.

    msdm_name_ref: volume with the MSDM table (Windows product key)
    slic_name_ref: volume with the SLIC table (Windows volume licence)
    """

    msdm_name_ref: str | None = None
    slic_name_ref: str | None = None


class BIOS(Model, frozen=True, kw_only=True):
    """API type ``BIOS``.

    A BIOS.

    use_serial: its output also goes to the serial console
    """

    use_serial: bool | None = None


class EFI(Model, frozen=True, kw_only=True):
    """API type ``EFI``.

    UEFI.

    persistent: its variables are kept when the instance ends
    secure_boot: only signed boot loaders run
    """

    persistent: bool | None = None
    secure_boot: bool | None = None


class Bootloader(Model, frozen=True, kw_only=True):
    """API type ``Bootloader``.

    At most one of the two.

    bios: a BIOS
    efi: UEFI
    """

    bios: BIOS | None = None
    efi: EFI | None = None


class Chassis(Model, frozen=True, kw_only=True):
    """API type ``Chassis``.

    SMBIOS type 3: what the guest reads about its case.

    asset: asset tag
    manufacturer: maker
    serial: serial number
    sku: stock keeping unit
    version: version
    """

    asset: str | None = None
    manufacturer: str | None = None
    serial: str | None = None
    sku: str | None = None
    version: str | None = None


class KernelBootContainer(Model, frozen=True, kw_only=True):
    """API type ``KernelBootContainer``.

    Kernel and initrd out of a container image.

    image: reference of the image
    image_pull_policy: when the image is looked up in the registry
    image_pull_secret: Secret with the registry's credentials
    initrd_path: absolute path of the initrd in the image
    kernel_path: absolute path of the kernel in the image
    """

    image: str
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = None
    image_pull_secret: str | None = None
    initrd_path: str | None = None
    kernel_path: str | None = None


class KernelBoot(Model, frozen=True, kw_only=True):
    """API type ``KernelBoot``.

    A kernel booted directly.

    container: container image that holds kernel and initrd
    kernel_args: command line of the kernel
    """

    container: KernelBootContainer | None = None
    kernel_args: str | None = None


class Firmware(Model, frozen=True, kw_only=True):
    """API type ``Firmware``.

    How the guest boots and what identifies it.

    acpi: tables with licences for Windows
    bootloader: BIOS or UEFI; absent, as fits the architecture
    kernel_boot: boot a kernel directly, without a boot loader
    serial: serial number of the machine that the guest reads
    uuid: UUID of the machine; absent, derived from namespace, name and uid
    """

    acpi: ACPI | None = None
    bootloader: Bootloader | None = None
    kernel_boot: KernelBoot | None = None
    serial: str | None = None
    uuid: str | None = None
