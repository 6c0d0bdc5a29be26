# SPDX-License-Identifier: Apache-2.0
"""PCI addresses as the API writes them. Pure."""

from __future__ import annotations

import re

from launcher.errors import InvalidSpec, Violation
from launcher.plan.devices.model import PciAddress

_PCI_ADDRESS = re.compile(r"([0-9a-fA-F]{4}):([0-9a-fA-F]{2}):([0-9a-fA-F]{2})\.([0-7])")


def is_pci_address(text: str) -> bool:
    """Whether ``text`` is written as ``dddd:bb:ss.f``."""
    return _PCI_ADDRESS.fullmatch(text) is not None


def pci_address(text: str | None, *, field: str) -> PciAddress | None:
    """Read an address such as ``0000:81:11.1``; None stays None.

    Raises:
        InvalidSpec: it is written differently.
    """
    if not text:
        return None
    found = _PCI_ADDRESS.fullmatch(text)
    if found is None:
        message = "a PCI address is written as dddd:bb:ss.f in hexadecimal, such as 0000:81:11.1"
        raise InvalidSpec(
            [Violation(field=field, type="FieldValueInvalid", value=text[:40], message=message)]
        )
    domain, bus, slot, function = (int(part, 16) for part in found.groups())
    return PciAddress(domain=domain, bus=bus, slot=slot, function=function)
