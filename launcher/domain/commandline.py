# SPDX-License-Identifier: Apache-2.0
"""``<qemu:commandline>``: what libvirt has no element for. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.domain.element import E, Element
from launcher.plan.model import VMPlan

NAMESPACE = "http://libvirt.org/schemas/domain/qemu/1.0"
FILE = ",file="
"""Stands between the name and the path in an argument of fw_cfg."""
SOCKET = ",path="
"""The same in that of a socket."""


def commandline(plan: VMPlan) -> Iterator[Element]:
    """Arguments of QEMU: a monitor, files in fw_cfg. A comma in a path is written twice, as QEMU wants it."""
    if not plan.firmware_files and not plan.rescue_monitor:
        return
    arguments: list[Element] = []
    if plan.rescue_monitor:
        path = plan.rescue_monitor.replace(",", ",,")
        arguments += [
            E("qemu:arg", value="-chardev"),
            E("qemu:arg", value=f"socket,id=rescue,server=on,wait=off{SOCKET}{path}"),
            E("qemu:arg", value="-mon"),
            E("qemu:arg", value="chardev=rescue,mode=control"),
        ]
    for file in plan.firmware_files:
        path = file.path.replace(",", ",,")
        arguments += [
            E("qemu:arg", value="-fw_cfg"),
            E("qemu:arg", value=f"name={file.name}{FILE}{path}"),
        ]
    yield E("qemu:commandline", *arguments, **{"xmlns:qemu": NAMESPACE})
