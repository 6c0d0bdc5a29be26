# SPDX-License-Identifier: Apache-2.0
"""Interfaces of a changed manifest for an instance that runs: what may change, and the plan after it. Pure.

A link may go up or down; an interface on a bridge of a multus network may come, or be made ``absent``; one
that is absent may leave the manifest.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from launcher.agent.allocate import mac_address, tap_name
from launcher.agent.changes import differences
from launcher.agent.draft import Site
from launcher.agent.ledger import shared_macs
from launcher.agent.records import InstanceRecord
from launcher.errors import Violation
from launcher.plan.allocations import Allocations
from launcher.plan.context import plan_context
from launcher.plan.devices.interface import plan_interfaces, unbound_networks
from launcher.plan.devices.model import DevicesPlan, InterfacePlan
from launcher.plan.networks import network_steps
from launcher.plan.runnable import require_runnable
from launcher.spec.model import Interface, Network, VirtualMachineInstance
from launcher.spec.path import ROOT

INTERFACES = "spec.domain.devices.interfaces"
NETWORKS = "spec.networks"
_RESTART = "the instance must be deleted and created anew for that"


def judged(path: str) -> bool:
    """Whether the field at ``path`` is for this module to judge."""
    return any(
        path == place or path.startswith((f"{place}.", f"{place}[")) for place in (INTERFACES, NETWORKS)
    )


def interface_violations(old: VirtualMachineInstance, new: VirtualMachineInstance) -> Iterator[Violation]:
    """Everything about the interfaces of the defaulted ``new`` that cannot be had while the guest runs."""
    were = {nic.name: nic for nic in old.spec.domain.devices.interfaces}
    networks = {network.name: network for network in new.spec.networks}
    for index, nic in enumerate(new.spec.domain.devices.interfaces):
        field = f"{INTERFACES}[{index}]"
        was = were.pop(nic.name, None)
        if was is None:
            yield from _plugged(field, nic, networks.get(nic.name), new)
        else:
            yield from _same(field, was, nic)
            before = next((n for n in old.spec.networks if n.name == nic.name), None)
            if before != networks.get(nic.name):
                yield _violation(NETWORKS, nic.name, f"an interface stays on its network; {_RESTART}")
    for name, was in were.items():
        if was.state != "absent":
            message = f"cannot leave while the guest has it: set its state to absent first, or {_RESTART}"
            yield _violation(INTERFACES, name, message)


def with_interfaces(
    vmi: VirtualMachineInstance, interfaces: tuple[Interface, ...], networks: tuple[Network, ...]
) -> VirtualMachineInstance:
    """``vmi`` with these interfaces."""
    devices = replace(vmi.spec.domain.devices, interfaces=interfaces)
    domain = replace(vmi.spec.domain, devices=devices)
    return replace(vmi, spec=replace(vmi.spec, domain=domain, networks=networks))


def with_planned_interfaces(after: InstanceRecord, before: InstanceRecord, site: Site) -> InstanceRecord:
    """The record with the plan of its interfaces. What the guest has stays as it is, but for the link.

    Steps of interfaces that leave stay in the plan until the domain has them no more.

    Raises:
        HostUnsupported: a network is none of this node's. Conflict: a MAC address is another instance's.
    """
    if after.defaulted.spec.domain.devices.interfaces == before.defaulted.spec.domain.devices.interfaces:
        return after
    allocations = _allocated(after)
    site.ledger.require_own_macs(shared_macs(after.defaulted, allocations))
    context = plan_context(after.defaulted, site.facts, allocations, site.plan)
    require_runnable(DevicesPlan(unbound=tuple(unbound_networks(context))))
    had = {nic.name: nic for nic in before.plan.devices.interfaces}
    planned = tuple(_kept(nic, had) for nic in plan_interfaces(context))
    added = DevicesPlan(interfaces=tuple(nic for nic in planned if nic.name not in had))
    steps = (step for step in network_steps(context, added) if step not in after.plan.steps)
    devices = replace(after.plan.devices, interfaces=planned)
    plan = replace(after.plan, devices=devices, steps=(*after.plan.steps, *steps))
    return replace(after, plan=plan, allocations=allocations)


def _kept(nic: InterfacePlan, had: dict[str, InterfacePlan]) -> InterfacePlan:
    was = had.get(nic.name)
    return nic if was is None else replace(was, link_down=nic.link_down)


def _allocated(record: InstanceRecord) -> Allocations:
    names = [nic.name for nic in record.defaulted.spec.domain.devices.interfaces]
    had = record.allocations
    return replace(
        had,
        macs={**{name: mac_address(record.uid, name) for name in names}, **had.macs},
        taps={**{name: tap_name(record.uid, name) for name in names}, **had.taps},
    )


def _plugged(
    field: str, nic: Interface, network: Network | None, vmi: VirtualMachineInstance
) -> Iterator[Violation]:
    if nic.bridge is None or network is None or network.multus is None:
        message = f"only a bridge to a multus network can be plugged while the guest runs; {_RESTART}"
        yield _violation(field, nic.name, message)
    elif vmi.spec.domain.devices.disable_hotplug:
        yield _violation(field, nic.name, f"disableHotplug leaves no slot for a device; {_RESTART}")


def _same(field: str, was: Interface, now: Interface) -> Iterator[Violation]:
    for path, value in differences(replace(was, state=None), replace(now, state=None), ROOT):
        message = f"cannot be changed while the guest runs; {_RESTART}"
        shown = str(value) if isinstance(value, str | int) else ""
        yield _violation(f"{field}.{path}", shown, message)


def _violation(path: str, value: str, message: str) -> Violation:
    return Violation(field=path, type="Forbidden", value=value[:80], message=message)
