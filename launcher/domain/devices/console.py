# SPDX-License-Identifier: Apache-2.0
"""``<serial>`` and ``<console>``. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.domain.element import E, Element
from launcher.plan.model import VMPlan

_PORT = E("target", port=0)
_CONSOLE = E("console", E("target", type="serial", port=0), type="pty")


def console(plan: VMPlan) -> Iterator[Element]:
    """The first serial port, on a unix socket with a log, and the console that stands for it."""
    serial = plan.devices.serial
    if serial is None:
        return
    yield E(
        "serial",
        E("source", mode="bind", path=serial.socket),
        E("log", file=serial.log, append="on") if serial.log is not None else None,
        _PORT,
        type="unix",
    )
    yield _CONSOLE
