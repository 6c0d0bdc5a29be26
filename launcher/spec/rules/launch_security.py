# SPDX-License-Identifier: Apache-2.0
"""Rules of ``spec.domain.launchSecurity``: one kind of confidential guest, and what it needs and excludes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from launcher.errors import Violation
from launcher.spec.rules.checks import is_base64
from launcher.spec.rules.context import DEVICES, DOMAIN, Context, Rule
from launcher.spec.rules.finding import forbidden, invalid, unsupported

SECURITY: Final = f"{DOMAIN}.launchSecurity"
# Certificates and sessions of SEV have less than 3 KiB; this leaves room for others.
LONGEST_BLOB: Final = 16 * 1024

_KINDS: Final = ("sev", "snp", "tdx")


def kinds(ctx: Context) -> Iterator[Violation]:
    """amd64 has exactly one kind, s390x none to choose (Secure Execution), arm64 nothing at all."""
    security = ctx.domain.launch_security
    if security is None:
        return
    given = [kind for kind in _KINDS if getattr(security, kind) is not None]
    if ctx.arch.name == "amd64":
        if len(given) != 1:
            yield forbidden(
                SECURITY, f"needs exactly one of {', '.join(_KINDS)}, has {', '.join(given) or 'none'}"
            )
        return
    if ctx.arch.name != "s390x":
        yield unsupported(SECURITY, None, (), f" on {ctx.arch.name}")
    for kind in given:
        yield unsupported(f"{SECURITY}.{kind}", None, (), f" on {ctx.arch.name}")


def firmware(ctx: Context) -> Iterator[Violation]:
    """Confidential guests boot by UEFI: SEV, SNP without secure boot; SNP, TDX without kept variables."""
    security = ctx.domain.launch_security
    if security is None or ctx.arch.name != "amd64":
        return
    efi = ctx.firmware.bootloader.efi if ctx.firmware.bootloader is not None else None
    for kind in _KINDS:
        if getattr(security, kind) is None:
            continue
        field = f"{SECURITY}.{kind}"
        if efi is None:
            yield invalid(field, None, f"{kind} needs UEFI: firmware.bootloader.efi")
            continue
        if kind != "tdx" and efi.secure_boot is not False:
            yield invalid(
                field, None, f"{kind} excludes secure boot: firmware.bootloader.efi.secureBoot must be false"
            )
        if kind != "sev" and efi.persistent:
            yield invalid(
                field, None, f"{kind} keeps no UEFI variables: bootloader.efi.persistent must not be true"
            )


def system_management(ctx: Context) -> Iterator[Violation]:
    """TDX has no system management mode."""
    security, smm = ctx.domain.launch_security, ctx.features.smm
    if security is not None and security.tdx is not None and smm is not None and smm.enabled is not False:
        yield invalid(f"{DOMAIN}.features.smm", None, "tdx excludes smm")


def bootable_interfaces(ctx: Context) -> Iterator[Violation]:
    """Interfaces have no boot ROM, so none of them can be booted from."""
    if ctx.domain.launch_security is None or ctx.arch.name != "amd64":
        return
    for path, interface in ctx.interfaces:
        if interface.boot_order is not None:
            yield invalid(
                f"{path}.bootOrder",
                interface.boot_order,
                "a guest with launchSecurity cannot boot from the network",
            )


def devices(ctx: Context) -> Iterator[Violation]:
    """Encrypted memory is shared with devices by the IOMMU platform bit, which transitional devices lack."""
    security = ctx.domain.launch_security
    if security is None or ctx.arch.name != "amd64" or (security.sev is None and security.snp is None):
        return
    if ctx.devices.use_virtio_transitional:
        yield invalid(
            f"{DEVICES}.useVirtioTransitional", True, "sev and snp need virtio devices without legacy mode"
        )


def attestation(ctx: Context) -> Iterator[Violation]:
    """A guest that is to be attested waits for it, and what its owner hands over is base64."""
    sev = ctx.domain.launch_security.sev if ctx.domain.launch_security is not None else None
    if sev is None:
        return
    if sev.attestation is not None and ctx.spec.start_strategy != "Paused":
        yield invalid(f"{SECURITY}.sev.attestation", None, "attestation needs spec.startStrategy Paused")
    for name, blob in (("dhCert", sev.dh_cert), ("session", sev.session)):
        if blob and (len(blob) > LONGEST_BLOB or not is_base64(blob)):
            yield invalid(
                f"{SECURITY}.sev.{name}",
                None,
                f"accepted is base64, at most {LONGEST_BLOB // 1024} KiB of it",
            )


RULES: tuple[Rule, ...] = (kinds, firmware, system_management, bootable_interfaces, devices, attestation)
