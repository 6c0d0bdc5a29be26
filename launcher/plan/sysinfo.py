# SPDX-License-Identifier: Apache-2.0
"""SMBIOS strings of the guest. Pure."""

from __future__ import annotations

from launcher.plan.context import PlanContext
from launcher.plan.model import Entry, SysinfoPlan


def sysinfo(context: PlanContext, uuid: str) -> SysinfoPlan:
    """System and chassis strings; empty ones are left out (libvirt's schema refuses empty blocks)."""
    firmware, chassis, settings = context.domain.firmware, context.domain.chassis, context.settings
    system = (
        ("uuid", uuid),
        ("serial", firmware.serial if firmware is not None else None),
        ("manufacturer", settings.smbios_manufacturer),
        ("family", settings.smbios_family),
        ("product", settings.smbios_product),
        ("sku", settings.smbios_sku),
        ("version", settings.smbios_version),
    )
    if chassis is None:
        return SysinfoPlan(system=_entries(system))
    box = (
        ("manufacturer", chassis.manufacturer),
        ("version", chassis.version),
        ("serial", chassis.serial),
        ("asset", chassis.asset),
        ("sku", chassis.sku),
    )
    return SysinfoPlan(system=_entries(system), chassis=_entries(box))


def _entries(pairs: tuple[tuple[str, str | None], ...]) -> tuple[Entry, ...]:
    return tuple(Entry(name=name, value=value) for name, value in pairs if value)
