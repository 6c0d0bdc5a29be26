# SPDX-License-Identifier: Apache-2.0
"""How the guest boots: machine type, firmware images, kernel, ACPI tables. Pure.

Images come from the host's firmware descriptors; only when none are known, from the usual file names.
"""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Literal

from launcher.errors import HostUnsupported
from launcher.plan import versions
from launcher.plan.context import PlanContext
from launcher.plan.facts import Firmware
from launcher.plan.launch_security import is_sev_es
from launcher.plan.model import AcpiTable, BootPlan, Loader, Nvram
from launcher.plan.steps import AnyStep, FetchKernel, MakeDirectory, WriteAcpiTable
from launcher.plan.volumes import default_pull_policy
from launcher.spec.model import ACPI, EFI, KernelBootContainer

# Time to enter the firmware's menu after a paused start is resumed.
MENU_TIMEOUT_MS = 10_000

# (code image, template of variables) by (architecture, kind of memory encryption, Secure Boot), as edk2's
# packages for RHEL and Fedora name them. No template: the image is a ROM without variables.
_USUAL_IMAGES = {
    ("amd64", "", False): ("OVMF_CODE.fd", "OVMF_VARS.fd"),
    ("amd64", "", True): ("OVMF_CODE.secboot.fd", "OVMF_VARS.secboot.fd"),
    ("amd64", "amd-sev", False): ("OVMF_CODE.cc.fd", "OVMF_VARS.fd"),
    ("amd64", "amd-sev-es", False): ("OVMF_CODE.cc.fd", "OVMF_VARS.fd"),
    ("amd64", "amd-sev-snp", False): ("OVMF.amdsev.fd", ""),
    ("amd64", "intel-tdx", False): ("OVMF.inteltdx.fd", ""),
    ("amd64", "intel-tdx", True): ("OVMF.inteltdx.secboot.fd", ""),
    ("arm64", "", False): ("AAVMF_CODE.fd", "AAVMF_VARS.fd"),
}
_STATELESS = ("amd-sev-snp", "intel-tdx")


def boot(context: PlanContext) -> BootPlan:
    """All of ``<os>``.

    Raises:
        HostUnsupported: no firmware image of the host does what is asked.
    """
    firmware = context.domain.firmware
    machine = machine_type(context)
    efi = firmware.bootloader.efi if firmware is not None and firmware.bootloader is not None else None
    bios = firmware.bootloader.bios if firmware is not None and firmware.bootloader is not None else None
    loader, nvram = _uefi(context, efi, machine) if efi is not None else (None, None)
    kernel_boot = firmware.kernel_boot if firmware is not None else None
    container = kernel_boot.container if kernel_boot is not None else None
    return BootPlan(
        machine=machine,
        loader=loader,
        nvram=nvram,
        kernel=context.paths.kernel if container is not None and container.kernel_path else None,
        initrd=context.paths.initrd if container is not None and container.initrd_path else None,
        cmdline=(kernel_boot.kernel_args or None) if kernel_boot is not None else None,
        acpi_tables=_acpi_tables(context, firmware.acpi if firmware is not None else None),
        menu_timeout_ms=MENU_TIMEOUT_MS if context.vmi.spec.start_strategy == "Paused" else None,
        smbios=context.arch.smbios,
        bios_serial=bios is not None and bool(bios.use_serial),
    )


def machine_type(context: PlanContext) -> str:
    """The board: the one the guest has, what is asked for, or the usual one of the architecture."""
    asked = context.domain.machine
    return context.allocations.machine or (asked.type if asked is not None else None) or context.arch.machine


def boot_steps(context: PlanContext) -> tuple[AnyStep, ...]:
    """What must be fetched and written before the guest can boot."""
    firmware = context.domain.firmware
    container = (
        firmware.kernel_boot.container if firmware is not None and firmware.kernel_boot is not None else None
    )
    tables = tuple(_table_steps(context, firmware.acpi if firmware is not None else None))
    if container is None:
        return tables
    owner = context.allocations.uid
    return (
        MakeDirectory(owner=owner, path=context.paths.boot),
        _fetch(context, container, owner),
        *tables,
    )


def _fetch(context: PlanContext, container: KernelBootContainer, owner: str) -> FetchKernel:
    return FetchKernel(
        owner=owner,
        image=container.image,
        pull_policy=container.image_pull_policy or default_pull_policy(container.image),
        pull_secret=container.image_pull_secret or None,
        digest=context.allocations.digests.get(container.image),
        kernel=container.kernel_path,
        kernel_path=context.paths.kernel if container.kernel_path else None,
        initrd=container.initrd_path,
        initrd_path=context.paths.initrd if container.initrd_path else None,
    )


def _table_steps(context: PlanContext, asked: ACPI | None) -> Iterator[AnyStep]:
    if asked is None:
        return
    owner, facts = context.allocations.uid, context.facts
    yield MakeDirectory(owner=owner, path=context.paths.acpi)
    names: tuple[tuple[Literal["slic", "msdm"], str | None], ...] = (
        ("slic", asked.slic_name_ref),
        ("msdm", asked.msdm_name_ref),
    )
    for table, volume in names:
        if volume:
            yield WriteAcpiTable(
                owner=owner,
                volume=volume,
                table=table,
                path=context.paths.acpi_table(table),
                uid=facts.qemu_uid,
                gid=facts.qemu_gid,
            )


def _uefi(context: PlanContext, efi: EFI, machine: str) -> tuple[Loader, Nvram | None]:
    encryption = _encryption(context)
    secure = efi.secure_boot is not False
    image = _choose(context, machine, encryption, secure=secure)
    if encryption in _STATELESS:
        return Loader(path=image.executable, type="rom"), None
    loader = Loader(path=image.executable, type="pflash", secure=secure)
    return loader, Nvram(path=context.paths.nvram, template=image.nvram_template)


def _encryption(context: PlanContext) -> str:
    """What encrypts the guest's memory, in the words of firmware descriptors; empty: nothing."""
    security = context.domain.launch_security
    if security is None or context.arch.name != "amd64":
        return ""
    if security.snp is not None:
        return "amd-sev-snp"
    if security.sev is not None:
        return "amd-sev-es" if is_sev_es(security.sev) else "amd-sev"
    return "intel-tdx" if security.tdx is not None else ""


def _choose(context: PlanContext, machine: str, encryption: str, *, secure: bool) -> Firmware:
    if context.facts.firmwares is None:
        return _usual(context, encryption, secure=secure)
    for firmware in context.facts.firmwares:
        if _fits(context, firmware, machine, encryption, secure=secure):
            return firmware
    raise _missing(context, encryption, secure=secure)


def _fits(context: PlanContext, firmware: Firmware, machine: str, encryption: str, *, secure: bool) -> bool:
    features = set(firmware.features)
    stateless = encryption in _STATELESS
    secure_flash = secure and not stateless
    return (
        "uefi" in firmware.interfaces
        and firmware.format == "raw"
        and firmware.nvram_format == "raw"
        and (_is_rom(firmware) if stateless else _has_variables(firmware))
        and (not encryption or encryption in features)
        and ("secure-boot" in features) == secure
        and (not secure_flash or "enrolled-keys" in features)
        and ("requires-smm" not in features or _has_smm(context))
        and _runs_on(context, firmware, machine)
    )


def _is_rom(firmware: Firmware) -> bool:
    """An image without variables, whether its descriptor calls it memory or a flash without state."""
    return firmware.device == "memory" or (firmware.device == "flash" and firmware.mode == "stateless")


def _has_variables(firmware: Firmware) -> bool:
    return firmware.device == "flash" and firmware.mode == "split" and bool(firmware.nvram_template)


def _has_smm(context: PlanContext) -> bool:
    asked = context.domain.features
    return asked is not None and asked.smm is not None and asked.smm.enabled is not False


def _runs_on(context: PlanContext, firmware: Firmware, machine: str) -> bool:
    """Descriptors name versioned machines. Where the host does not say what an alias stands for, it is taken
    for a release that every glob holds."""
    guest = context.facts.guest(context.arch)
    canonical = guest.canonical(machine) if guest is not None else machine
    names = {machine, canonical, f"pc-{machine}-0" if machine == "q35" else f"{machine}-0"}
    return any(
        target.arch == context.arch.libvirt
        and any(fnmatchcase(name, glob) for glob in target.machines for name in names)
        for target in firmware.targets
    )


def _usual(context: PlanContext, encryption: str, *, secure: bool) -> Firmware:
    found = _USUAL_IMAGES.get((context.arch.name, encryption, secure))
    if found is None:
        raise _missing(context, encryption, secure=secure)
    code, template = found
    directory = context.arch.firmware_dir
    return Firmware(
        executable=f"{directory}/{code}",
        nvram_template=f"{directory}/{template}" if template else "",
        device="flash" if template else "memory",
    )


def _missing(context: PlanContext, encryption: str, *, secure: bool) -> HostUnsupported:
    wishes = [f"UEFI for {context.arch.name}", "with" if secure else "without", "Secure Boot"]
    if encryption:
        wishes.append(f"for {encryption}")
    return HostUnsupported(
        " ".join(wishes),
        "no firmware descriptor of the host offers it",
        hint="install the edk2 package that does",
    )


def _acpi_tables(context: PlanContext, asked: ACPI | None) -> tuple[AcpiTable, ...]:
    if asked is None:
        return ()
    names = (("slic", asked.slic_name_ref), ("msdm", asked.msdm_name_ref))
    tables = tuple(AcpiTable(type=kind, path=context.paths.acpi_table(kind)) for kind, name in names if name)
    if context.facts.libvirt_version < versions.ACPI_TABLES and any(table.type == "msdm" for table in tables):
        raise HostUnsupported("an MSDM table", "libvirt is older than 11.2", hint="give slicNameRef alone")
    return tables
