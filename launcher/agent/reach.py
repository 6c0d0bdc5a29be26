# SPDX-License-Identifier: Apache-2.0
"""Where a guest is reached from its node: addresses, and the namespace to speak to each from. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from dataclasses import dataclass

from launcher.agent.records import InstanceRecord
from launcher.errors import HostUnsupported, Unavailable, WrongPhase
from launcher.plan.steps import TranslateAddresses
from launcher.spec.model import VirtualMachineInstance


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """An address of the guest and the namespace (None: the node's) in which it is the guest's."""

    address: str
    namespace: str | None = None


def ways(record: InstanceRecord, shown: VirtualMachineInstance | None) -> tuple[Way, ...]:
    """All ways to the guest, the best first: behind masquerade its own addresses inside, each with all of its
    ports; else those that ``shown`` tells of the others.

    Raises:
        WrongPhase: it has no interface. HostUnsupported: none that can be reached from here.
        Unavailable: no address is known yet.
    """
    interfaces = record.defaulted.spec.domain.devices.interfaces
    if not interfaces:
        raise WrongPhase(f"{record.key} has no network interface", hint="add one to its manifest")
    found = (*_inside(record), *_outside(record, shown))
    if found:
        return found
    bridged = [nic.name for nic in interfaces if nic.bridge is not None or nic.binding is not None]
    if bridged:
        raise Unavailable(
            f"no address of {record.key} is known ({', '.join(bridged)})",
            hint="the guest's agent tells it, or the neighbour table of a node that is on the same network",
        )
    raise HostUnsupported(
        "a way to the guest",
        f"{record.key} has neither a masquerade nor a bridge ({', '.join(nic.name for nic in interfaces)})",
        hint="passt listens on the node by itself: connect there",
    )


def _inside(record: InstanceRecord) -> Iterator[Way]:
    for step in record.plan.steps:
        if isinstance(step, TranslateAddresses):
            yield from (Way(address=guest, namespace=step.namespace) for guest in step.guests)


def _outside(record: InstanceRecord, shown: VirtualMachineInstance | None) -> Iterator[Way]:
    translated = {nic.name for nic in record.defaulted.spec.domain.devices.interfaces if nic.masquerade}
    status = shown.status if shown is not None else None
    for nic in status.interfaces if status is not None else ():
        if nic.name and nic.name not in translated:
            yield from (Way(address=address) for address in nic.ip_addresses if _global(address))


def _global(address: str) -> bool:
    return not ipaddress.ip_address(address.partition("/")[0]).is_link_local
