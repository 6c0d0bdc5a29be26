# SPDX-License-Identifier: Apache-2.0
"""What devices of this host are, by their addresses. Blocking: reads /sys."""

from __future__ import annotations

from pathlib import Path
from typing import Final

SYSFS: Final = Path("/sys")


def model_of(address: str, *, sysfs: Path = SYSFS) -> str:
    """``VENDOR:DEVICE`` of a PCI device, the type of a mediated one; empty: there is no such device."""
    pci = sysfs / "bus/pci/devices" / address
    kind = sysfs / "bus/mdev/devices" / address / "mdev_type"
    try:
        if kind.exists():
            return kind.resolve().name
        return ":".join(_number(pci / name) for name in ("vendor", "device"))
    except OSError:
        return ""


def driver_of(address: str, *, sysfs: Path = SYSFS) -> str:
    """The driver of a PCI device; empty: it has none, or is none."""
    driver = sysfs / "bus/pci/devices" / address / "driver"
    return driver.resolve().name if driver.exists() else ""


def _number(path: Path) -> str:
    return path.read_text().strip().removeprefix("0x")
