# SPDX-License-Identifier: Apache-2.0
"""Interfaces of a running guest: those that are planned against those that the domain has. Pure.

As with ``hotplug``, the domain's live XML is the truth about what it has. What an interface needs on the node
comes before it is plugged, and goes when the domain has it no more.
"""

from __future__ import annotations

from dataclasses import dataclass

from msgspec.structs import replace

from launcher.agent.functions import functions_of
from launcher.agent.records import InstanceRecord
from launcher.domain.read import DomainView, InterfaceView
from launcher.plan.devices.model import InterfacePlan, PciAddress
from launcher.plan.networks import network_of
from launcher.plan.steps import AnyStep


@dataclass(frozen=True, slots=True)
class PlugInterface:
    """Make ``steps``, then give the guest the interface."""

    nic: InterfacePlan
    steps: tuple[AnyStep, ...]


@dataclass(frozen=True, slots=True)
class UnplugInterface:
    """Ask the guest to give the interface back."""

    name: str
    mac: str


@dataclass(frozen=True, slots=True)
class SetLink:
    """Plug the interface's cable in, or pull it, as ``nic`` says."""

    nic: InterfacePlan


@dataclass(frozen=True, slots=True)
class DropNetwork:
    """Release what interfaces needed that the guest has no more."""

    steps: tuple[AnyStep, ...]


InterfaceStep = PlugInterface | UnplugInterface | SetLink | DropNetwork


def interfaces_step(record: InstanceRecord, live: DomainView) -> InterfaceStep | None:
    """What brings the interfaces to those that are planned; None: they are so."""
    planned = {nic.name: nic for nic in record.plan.devices.interfaces}
    there = {nic.alias: nic for nic in live.interfaces}
    for name, nic in planned.items():
        seen = there.get(name)
        if seen is None and nic.tap is not None:
            return PlugInterface(_placed(nic, live), _steps_of(record, name))
        if seen is not None and (seen.link == "down") != nic.link_down:
            return SetLink(nic)
    for name, seen in there.items():
        if name not in planned and _ours(record, name, seen):
            return UnplugInterface(name, seen.mac)
    stale = stale_steps(record, frozenset(there))
    return DropNetwork(stale) if stale else None


def stale_steps(record: InstanceRecord, there: frozenset[str]) -> tuple[AnyStep, ...]:
    """Steps of interfaces that are neither planned nor in the domain."""
    wanted = {nic.name for nic in record.plan.devices.interfaces} | there
    wanted |= {device.name for device in functions_of(record)}
    return tuple(step for step in record.plan.steps if network_of(step) not in {None, *wanted})


def without_steps(record: InstanceRecord, steps: tuple[AnyStep, ...]) -> InstanceRecord:
    """The record whose plan has none of ``steps``."""
    left = tuple(step for step in record.plan.steps if step not in steps)
    return replace(record, plan=replace(record.plan, steps=left))


def _steps_of(record: InstanceRecord, name: str) -> tuple[AnyStep, ...]:
    return tuple(step for step in record.plan.steps if network_of(step) == name)


def _ours(record: InstanceRecord, name: str, seen: InterfaceView) -> bool:
    return record.allocations.taps.get(name) == seen.target


def _placed(nic: InterfacePlan, live: DomainView) -> InterfacePlan:
    """On a port of its own, the same in the running domain and in its definition."""
    port = next(iter(live.free_ports), None)
    if nic.address is not None or port is None:
        return nic
    return replace(nic, address=PciAddress(bus=port, slot=0))
