# SPDX-License-Identifier: Apache-2.0
"""``<memory>`` as a device: the virtio-mem device that memory is plugged through. Pure.

It is not part of a plan: a guest starts without one, and gets it the first time that it grows.
"""

from __future__ import annotations

from launcher.domain.devices.address import alias, pci
from launcher.domain.element import E, to_text
from launcher.domain.read import MemoryDeviceView

NAME = "memory"
"""The alias of the device without its prefix: there is one at most."""


def memory_device(device: MemoryDeviceView) -> str:
    """The element for attaching ``device``, or for changing what is requested of it; sizes in bytes."""
    return to_text(
        E(
            "memory",
            E(
                "target",
                E("size", device.size, unit="b"),
                E("node", device.node),
                E("block", device.block, unit="b"),
                E("requested", device.requested, unit="b"),
            ),
            alias(device.alias),
            pci(device.address),
            model="virtio-mem",
        )
    )
