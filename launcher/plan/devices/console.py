# SPDX-License-Identifier: Apache-2.0
"""``autoattachSerialConsole`` and ``logSerialConsole`` -> SerialPlan. Pure."""

from __future__ import annotations

from launcher.plan.context import PlanContext
from launcher.plan.devices.model import SerialPlan


def plan_serial(context: PlanContext) -> SerialPlan | None:
    """Plan the first serial port, which is there unless it is turned off."""
    if context.devices.autoattach_serial_console is False:
        return None
    logged = context.devices.log_serial_console
    if logged is None:
        logged = context.settings.serial_log
    return SerialPlan(socket=context.paths.serial_socket, log=context.paths.serial_log if logged else None)
