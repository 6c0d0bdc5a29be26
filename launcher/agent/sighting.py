# SPDX-License-Identifier: Apache-2.0
"""What is known of a guest's interfaces, from all who know something, as the status shows it. Pure.

The domain knows what interfaces there are and their links; the guest's agent names and addresses; without an
agent, leases and the node's neighbour tables know addresses.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from launcher.agent.records import InstanceRecord
from launcher.domain.read import DomainView, InterfaceView
from launcher.guest.agent import GuestInterface
from launcher.network.leases import Lease
from launcher.plan.devices.model import InterfacePlan
from launcher.spec.model import Interface, VirtualMachineInstanceNetworkInterface

DOMAIN, AGENT, LEASE, NEIGHBOUR = "domain", "guest-agent", "lease", "neighbour"
"""Sources; the first two are KubeVirt's words."""
MOST_OF_THE_GUEST: Final = 10
"""Interfaces that only the guest knows: as many as KubeVirt shows."""
LOOPBACK: Final = "lo"
Shown = VirtualMachineInstanceNetworkInterface


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """What was seen last. ``guest`` None: its agent does not tell; ``neighbours`` are addresses by MAC."""

    guest: tuple[GuestInterface, ...] | None = None
    leases: tuple[Lease, ...] = ()
    neighbours: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


NOTHING: Final = Sighting()


def interfaces(
    record: InstanceRecord, live: DomainView | None, seen: Sighting = NOTHING
) -> tuple[Shown, ...]:
    """The interfaces of the manifest, that of the pod network first, then those that only the guest knows.

    A masqueraded interface shows the addresses at which the node reaches it, not those of its inside. One
    that is still to be plugged has no source.
    """
    told = {nic.mac: nic for nic in seen.guest or () if nic.mac}
    there = {nic.alias: nic for nic in live.interfaces} if live is not None else None
    planned = {nic.name: nic for nic in record.plan.devices.interfaces}
    found = []
    for asked in sorted(record.defaulted.spec.domain.devices.interfaces, key=_order(record)):
        nic = planned.get(asked.name)
        if nic is not None:
            found.append(_planned(record, asked, nic, there, told, seen))
        elif asked.sriov is not None:
            plugged = live is None or f"sriov-{asked.name}" in live.hostdevs
            found.append(_passed_through(asked, told, plugged=plugged))
    return (*found, *_of_the_guest(seen.guest or (), {shown.mac for shown in found}))


def _order(record: InstanceRecord) -> Callable[[Interface], bool]:
    primary = {
        network.name
        for network in record.defaulted.spec.networks
        if network.pod is not None or (network.multus is not None and network.multus.default)
    }
    return lambda nic: nic.name not in primary


def _planned(
    record: InstanceRecord,
    asked: Interface,
    nic: InterfacePlan,
    there: dict[str, InterfaceView] | None,
    told: dict[str, GuestInterface],
    seen: Sighting,
) -> Shown:
    mac = (nic.mac or "").lower()
    view = there.get(nic.name) if there is not None else None
    guest = told.get(mac)
    sources = {
        AGENT: _lasting(guest.addresses) if guest is not None else None,
        LEASE: tuple(lease.address for lease in seen.leases if lease.network == nic.name) or None,
        NEIGHBOUR: _lasting(seen.neighbours.get(mac, ())) or None,
    }
    addresses = _addresses(record, asked, sources)
    known = [DOMAIN] if there is None or view is not None else []
    known += [name for name, value in sources.items() if value is not None]
    return Shown(
        name=nic.name,
        mac=nic.mac,
        ip_address=next(iter(addresses), None),
        ip_addresses=addresses,
        interface_name=guest.name if guest is not None else None,
        info_source=", ".join(known) or None,
        queue_count=(view.queues if view is not None else 0) or nic.queues or 1,
        link_state=view.link if view is not None else "down" if nic.link_down else "up",
        pod_interface_name=nic.tap,
    )


def _addresses(
    record: InstanceRecord, asked: Interface, sources: dict[str, tuple[str, ...] | None]
) -> tuple[str, ...]:
    """The guest itself knows best; others may know what was."""
    if asked.masquerade is not None:
        return record.allocations.outer
    if sources[AGENT]:
        return sources[AGENT] or ()
    return tuple(dict.fromkeys((*(sources[LEASE] or ()), *(sources[NEIGHBOUR] or ()))))


def _passed_through(asked: Interface, told: dict[str, GuestInterface], *, plugged: bool) -> Shown:
    guest = told.get((asked.mac_address or "").lower().replace("-", ":"))
    addresses = _lasting(guest.addresses) if guest is not None else ()
    known = [source for source, there in ((DOMAIN, plugged), (AGENT, guest is not None)) if there]
    return Shown(
        name=asked.name,
        mac=asked.mac_address,
        ip_address=next(iter(addresses), None),
        ip_addresses=addresses,
        interface_name=guest.name if guest is not None else None,
        info_source=", ".join(known) or None,
    )


def _of_the_guest(told: Iterable[GuestInterface], known: set[str | None]) -> Iterator[Shown]:
    shown = {(mac or "").lower().replace("-", ":") for mac in known}
    others = [nic for nic in told if nic.name != LOOPBACK and nic.mac not in shown]
    for nic in others[:MOST_OF_THE_GUEST]:
        addresses = _lasting(nic.addresses)
        yield Shown(
            mac=nic.mac or None,
            ip_address=next(iter(addresses), None),
            ip_addresses=addresses,
            interface_name=nic.name,
            info_source=AGENT,
        )


def _lasting(addresses: Iterable[str]) -> tuple[str, ...]:
    """Those that lead anywhere beyond the link."""
    return tuple(one for one in addresses if not ipaddress.ip_address(one).is_link_local)
