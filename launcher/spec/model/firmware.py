# SPDX-License-Identifier: Apache-2.0
"""Boot firmware, direct kernel boot, ACPI tables and the SMBIOS chassis."""

from __future__ import annotations

from typing import Literal

from launcher.spec.model.base import Model


class ACPI(Model, frozen=True, kw_only=True):
    """API type ``ACPI``."""

    msdm_name_ref: str | None = None
    slic_name_ref: str | None = None


class BIOS(Model, frozen=True, kw_only=True):
    """API type ``BIOS``."""

    use_serial: bool | None = None


class EFI(Model, frozen=True, kw_only=True):
    """API type ``EFI``."""

    persistent: bool | None = None
    secure_boot: bool | None = None


class Bootloader(Model, frozen=True, kw_only=True):
    """API type ``Bootloader``."""

    bios: BIOS | None = None
    efi: EFI | None = None


class Chassis(Model, frozen=True, kw_only=True):
    """API type ``Chassis``."""

    asset: str | None = None
    manufacturer: str | None = None
    serial: str | None = None
    sku: str | None = None
    version: str | None = None


class KernelBootContainer(Model, frozen=True, kw_only=True):
    """API type ``KernelBootContainer``."""

    image: str
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = None
    image_pull_secret: str | None = None
    initrd_path: str | None = None
    kernel_path: str | None = None


class KernelBoot(Model, frozen=True, kw_only=True):
    """API type ``KernelBoot``."""

    container: KernelBootContainer | None = None
    kernel_args: str | None = None


class Firmware(Model, frozen=True, kw_only=True):
    """API type ``Firmware``."""

    acpi: ACPI | None = None
    bootloader: Bootloader | None = None
    kernel_boot: KernelBoot | None = None
    serial: str | None = None
    uuid: str | None = None
