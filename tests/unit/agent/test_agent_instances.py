# SPDX-License-Identifier: Apache-2.0
"""When an agent that starts is ready to be asked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from launcher.agent.instances import Instances
from launcher.agent.machine import Services
from launcher.agent.supervisor import Supervisor
from launcher.host.config import Config
from launcher.hypervisor.port import ConnectionEvent, Event, Hypervisor


class Connecting:
    """The part of a hypervisor that tells whether libvirt is there."""

    def __init__(self) -> None:
        self.connected = False
        self.listeners: list[Callable[[Event], None]] = []

    def subscribe(self, listener: Callable[[Event], None]) -> Callable[[], None]:
        self.listeners.append(listener)
        return lambda: self.listeners.remove(listener)

    def tell(self, *, up: bool) -> None:
        self.connected = up
        for listener in tuple(self.listeners):
            listener(ConnectionEvent(up=up))


def instances(hypervisor: Connecting) -> Instances:
    unused = None
    services = Services(
        node="a",
        hypervisor=cast("Hypervisor", hypervisor),
        store=unused,  # type: ignore[arg-type]
        resources=unused,  # type: ignore[arg-type]
        hub=unused,  # type: ignore[arg-type]
        clock=unused,  # type: ignore[arg-type]
    )
    config = Config()
    return Instances(config, services, unused, Supervisor())  # type: ignore[arg-type]


async def test_it_settles_when_libvirt_is_there() -> None:
    hypervisor = Connecting()
    settling = asyncio.create_task(instances(hypervisor).settle(timeout_s=60))
    while not hypervisor.listeners:
        await asyncio.sleep(0)
    hypervisor.tell(up=False)
    for _ in range(5):
        await asyncio.sleep(0)
    assert not settling.done(), "libvirt refused once; the next try may do"
    hypervisor.tell(up=True)
    await asyncio.wait_for(settling, 5)
    assert hypervisor.listeners == []


async def test_without_libvirt_it_settles_all_the_same() -> None:
    hypervisor = Connecting()
    await instances(hypervisor).settle(timeout_s=0.01)
    assert hypervisor.listeners == []
