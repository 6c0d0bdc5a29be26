# SPDX-License-Identifier: Apache-2.0
"""``<vsock>``. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.domain.devices.address import pci
from launcher.domain.element import E, Element
from launcher.plan.model import VMPlan


def vsock(plan: VMPlan) -> Iterator[Element]:
    """The vsock device, if there is one; without a CID libvirt picks a free one."""
    device = plan.devices.vsock
    if device is None:
        return
    cid = E("cid", auto="yes") if device.cid is None else E("cid", auto="no", address=device.cid)
    yield E("vsock", cid, pci(device.address), model=device.model)
