# SPDX-License-Identifier: Apache-2.0
"""Rules of ``spec.domain.firmware`` and ``chassis``: boot loader, kernel boot, ACPI tables, SMBIOS texts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from launcher.errors import Violation
from launcher.spec.model import Chassis
from launcher.spec.rules.checks import absolute_path, dns_subdomain, image, printable
from launcher.spec.rules.context import DOMAIN, Context, Rule
from launcher.spec.rules.finding import invalid, not_found, required, unsupported

FIRMWARE: Final = f"{DOMAIN}.firmware"
# SMBIOS strings have no limit of their own; guests show no more than this.
LONGEST_SMBIOS: Final = 256
# The longest of the kernels' own limits (s390x since 5.15; amd64 and arm64 take 2048).
LONGEST_KERNEL_ARGS: Final = 4096

_UUID: Final = re.compile(r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}")


def identity(ctx: Context) -> Iterator[Violation]:
    """The UUID is one, and what goes into SMBIOS is printable text."""
    uuid = ctx.firmware.uuid
    if uuid and _UUID.fullmatch(uuid) is None:
        yield invalid(f"{FIRMWARE}.uuid", uuid, "not a UUID such as 5d307ca9-b3ef-428c-8861-06e72d69f223")
    yield from printable(f"{FIRMWARE}.serial", ctx.firmware.serial, LONGEST_SMBIOS)
    if ctx.domain.chassis is not None:
        for name in Chassis.__struct_fields__:
            yield from printable(
                f"{DOMAIN}.chassis.{name}", getattr(ctx.domain.chassis, name), LONGEST_SMBIOS
            )


def bootloader(ctx: Context) -> Iterator[Violation]:
    """There is one boot loader, and the architecture has it."""
    loader = ctx.firmware.bootloader
    if loader is None:
        return
    path = f"{FIRMWARE}.bootloader"
    if loader.bios is not None and loader.efi is not None:
        yield invalid(path, None, "bios and efi exclude each other")
    if loader.bios is not None and "bios" not in ctx.arch.bootloaders:
        yield unsupported(f"{path}.bios", None, ctx.arch.bootloaders, f" on {ctx.arch.name}")
    if loader.efi is not None and "efi" not in ctx.arch.bootloaders:
        yield unsupported(f"{path}.efi", None, (), f" on {ctx.arch.name}")
    if loader.bios is not None and loader.bios.use_serial and ctx.devices.autoattach_serial_console is False:
        yield invalid(
            f"{path}.bios.useSerial",
            True,
            "needs the serial console: autoattachSerialConsole must not be false",
        )


def secure_boot(ctx: Context) -> Iterator[Violation]:
    """UEFI needs ACPI, and secure boot needs system management mode, which only amd64 has."""
    loader = ctx.firmware.bootloader
    if loader is None or loader.efi is None:
        return
    field = f"{FIRMWARE}.bootloader.efi"
    acpi = ctx.features.acpi
    if ctx.arch.name == "amd64" and acpi is not None and acpi.enabled is False:
        yield invalid(f"{DOMAIN}.features.acpi.enabled", False, "UEFI needs ACPI")
    security = ctx.domain.launch_security
    if loader.efi.secure_boot is False or "efi" not in ctx.arch.bootloaders:
        return
    if not ctx.arch.smm:
        if loader.efi.secure_boot:
            yield unsupported(f"{field}.secureBoot", True, ("false",), f" on {ctx.arch.name}")
        return
    smm = ctx.features.smm
    if (smm is None or smm.enabled is False) and (security is None or security.tdx is None):
        yield invalid(
            f"{field}.secureBoot",
            loader.efi.secure_boot,
            "secure boot (the default) needs features.smm; accepted: secureBoot false, or smm enabled",
        )


def kernel_boot(ctx: Context) -> Iterator[Violation]:
    """A kernel comes from an image, at a path in it; what goes with it needs a kernel."""
    boot = ctx.firmware.kernel_boot
    if boot is None:
        return
    path = f"{FIRMWARE}.kernelBoot"
    yield from printable(f"{path}.kernelArgs", boot.kernel_args, LONGEST_KERNEL_ARGS)
    container = boot.container
    if container is None:
        if boot.kernel_args:
            yield invalid(
                f"{path}.kernelArgs", boot.kernel_args, "arguments need a kernel: kernelBoot.container"
            )
        return
    path += ".container"
    yield from image(f"{path}.image", container.image)
    if container.image_pull_secret:
        yield from dns_subdomain(f"{path}.imagePullSecret", container.image_pull_secret)
    if not container.kernel_path:
        what = "an initrd needs a kernel" if container.initrd_path else "needs kernelPath"
        yield required(f"{path}.kernelPath", f"{what}: the absolute path of one in the image")
    else:
        yield from absolute_path(f"{path}.kernelPath", container.kernel_path, "a kernel in the image")
    if container.initrd_path:
        yield from absolute_path(f"{path}.initrdPath", container.initrd_path, "an initrd in the image")


def acpi_tables(ctx: Context) -> Iterator[Violation]:
    """ACPI tables come from volumes that are secrets."""
    acpi = ctx.firmware.acpi
    if acpi is None:
        return
    refs = (("slicNameRef", acpi.slic_name_ref), ("msdmNameRef", acpi.msdm_name_ref))
    if not any(ref for _, ref in refs):
        yield required(f"{FIRMWARE}.acpi", "needs slicNameRef or msdmNameRef")
    for name, ref in refs:
        if not ref:
            continue
        volume = ctx.volume_named.get(ref)
        if volume is None:
            yield not_found(f"{FIRMWARE}.acpi.{name}", ref, "there is no volume of this name")
        elif volume.secret is None:
            yield invalid(f"{FIRMWARE}.acpi.{name}", ref, "the volume of this name must be a secret")


RULES: tuple[Rule, ...] = (identity, bootloader, secure_boot, kernel_boot, acpi_tables)
