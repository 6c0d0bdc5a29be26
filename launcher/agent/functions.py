# SPDX-License-Identifier: Apache-2.0
"""Virtual functions that a running guest should have against those it has. Pure.

A guest gives them back before it moves to another node. Wherever it is afterwards, the node sees that they
are missing and plugs its own: after the move, after one that failed, after an agent that died in between.
"""

from __future__ import annotations

from dataclasses import dataclass

from msgspec.structs import replace

from launcher.agent.records import InstanceRecord
from launcher.domain.read import DomainView
from launcher.plan.devices.hostdev import is_function
from launcher.plan.devices.model import HostdevPlan, PciAddress


@dataclass(frozen=True, slots=True)
class PlugFunction:
    """Give the guest the virtual function."""

    device: HostdevPlan


def functions_of(record: InstanceRecord) -> tuple[HostdevPlan, ...]:
    """The virtual functions that the guest is to have."""
    return tuple(device for device in record.plan.devices.hostdevs if is_function(device))


def function_step(record: InstanceRecord, live: DomainView) -> PlugFunction | None:
    """What gives the guest the next one that it lacks; None: it has all."""
    for device in functions_of(record):
        if device.alias not in live.hostdevs:
            return PlugFunction(_placed(device, live))
    return None


def _placed(device: HostdevPlan, live: DomainView) -> HostdevPlan:
    """Where it was, or if something else is there by now on another free port: the guest names it by that."""
    wanted = device.address
    if wanted is None or wanted.bus in live.free_ports:
        return device
    port = next(iter(live.free_ports), None)
    return replace(device, address=PciAddress(bus=port, slot=0) if port is not None else None)
