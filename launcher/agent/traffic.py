# SPDX-License-Identifier: Apache-2.0
"""What goes over the interfaces of guests that run here: libvirt's counters by the names of the manifest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from launcher.agent.machine import Machine
from launcher.agent.port import InterfaceTraffic
from launcher.hypervisor.port import Hypervisor, LinkUsage

TIMEOUT_S: Final = 3.0
"""Whoever scrapes waits for it."""


async def traffic(hypervisor: Hypervisor, machines: Sequence[Machine]) -> tuple[InterfaceTraffic, ...]:
    """Of all interfaces of ``machines`` that libvirt counts; nothing is asked where there are none.

    Raises:
        HypervisorUnavailable, TimedOut.
    """
    if not machines:
        return ()
    found = await hypervisor.links(timeout_s=TIMEOUT_S)
    return tuple(
        one
        for machine in machines
        if not machine.record.incoming
        for one in _of(machine, found.get(machine.record.plan.identity.uuid, ()))
    )


def _of(machine: Machine, links: tuple[LinkUsage, ...]) -> Iterator[InterfaceTraffic]:
    record = machine.record
    names = {nic.tap: nic.name for nic in record.plan.devices.interfaces if nic.tap is not None}
    for link in links:
        if link.link in names:
            yield InterfaceTraffic(
                namespace=record.namespace,
                instance=record.name,
                interface=names[link.link],
                rx_bytes=link.rx_bytes,
                rx_packets=link.rx_packets,
                rx_errors=link.rx_errors,
                rx_dropped=link.rx_dropped,
                tx_bytes=link.tx_bytes,
                tx_packets=link.tx_packets,
                tx_errors=link.tx_errors,
                tx_dropped=link.tx_dropped,
            )
