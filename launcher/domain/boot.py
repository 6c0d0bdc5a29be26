# SPDX-License-Identifier: Apache-2.0
"""``<os>``: machine, firmware, kernel. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.domain.element import E, Element, yes_no
from launcher.plan.model import BootPlan, VMPlan


def boot(plan: VMPlan) -> Iterator[Element]:
    """How the guest boots. Boot order is given at the devices, never here."""
    asked = plan.boot
    yield E(
        "os",
        E("type", "hvm", arch=plan.identity.arch, machine=asked.machine),
        _loader(asked),
        E("nvram", asked.nvram.path, template=asked.nvram.template) if asked.nvram is not None else None,
        E("kernel", asked.kernel) if asked.kernel else None,
        E("initrd", asked.initrd) if asked.initrd else None,
        E("cmdline", asked.cmdline) if asked.cmdline else None,
        E("acpi", *(E("table", table.path, type=table.type) for table in asked.acpi_tables))
        if asked.acpi_tables
        else None,
        E("bootmenu", enable="yes", timeout=asked.menu_timeout_ms)
        if asked.menu_timeout_ms is not None
        else None,
        E("bios", useserial="yes") if asked.bios_serial else None,
        E("smbios", mode="sysinfo") if asked.smbios else None,
    )


def _loader(asked: BootPlan) -> Element | None:
    if asked.loader is None:
        return None
    return E(
        "loader",
        asked.loader.path,
        readonly="yes",
        secure=yes_no(asked.loader.secure),
        type=asked.loader.type,
    )
