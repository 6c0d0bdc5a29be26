# SPDX-License-Identifier: Apache-2.0
"""Events and the link on libvirt's own test driver, which lives in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import libvirt
import pytest

from launcher.errors import HypervisorUnavailable
from launcher.hypervisor.driver import LibvirtHypervisor
from launcher.hypervisor.events import _subscriptions, event_thread_silent_for_s
from launcher.hypervisor.port import (
    AgentLifecycleEvent,
    ConnectionEvent,
    DeviceKeptEvent,
    DeviceRemovedEvent,
    DomainState,
    Event,
    IoErrorEvent,
    LifecycleEvent,
    MemoryDeviceEvent,
)

UUID = "6695eb01-f6a4-8304-79aa-97f2502e193f"  # of the domain that test:///default always has


async def _connected(hypervisor: LibvirtHypervisor, seen: list[Event], test: Callable[[Event], bool]) -> None:
    changed = asyncio.Event()

    def listen(event: Event) -> None:
        seen.append(event)
        changed.set()

    hypervisor.subscribe(listen)
    await hypervisor.start()
    async with asyncio.timeout(30):
        while not any(test(event) for event in seen):
            changed.clear()
            await changed.wait()


async def test_drives_the_test_driver() -> None:
    hypervisor, seen = LibvirtHypervisor("test:///default"), list[Event]()
    await _connected(hypervisor, seen, lambda event: isinstance(event, ConnectionEvent) and event.up)
    assert event_thread_silent_for_s() < 5
    (record,) = await hypervisor.list_domains()
    assert (record.uuid, record.name, record.state) == (UUID, "test", DomainState.RUNNING)
    assert await hypervisor.domain(UUID) == record
    await hypervisor.suspend(UUID)
    assert (await hypervisor.domain(UUID)).reason == "user"
    await hypervisor.resume(UUID)
    await hypervisor.close()
    assert not hypervisor.connected
    with pytest.raises(HypervisorUnavailable, match="closed"):
        await hypervisor.list_domains()


async def test_a_listener_that_raises_costs_the_others_nothing() -> None:
    hypervisor, seen = LibvirtHypervisor("test:///default"), list[Event]()
    raised: list[object] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _loop, context: raised.append(context["exception"])
    )
    failure = RuntimeError("broken listener")

    def broken(_event: Event) -> None:
        raise failure

    hypervisor.subscribe(broken)
    await _connected(hypervisor, seen, lambda event: isinstance(event, ConnectionEvent) and event.up)
    assert raised == [failure]
    await hypervisor.close()


async def test_an_address_that_nobody_serves_is_a_state() -> None:
    hypervisor, seen = LibvirtHypervisor("nonsense:///"), list[Event]()
    await _connected(hypervisor, seen, lambda event: isinstance(event, ConnectionEvent))
    (down,) = seen
    assert isinstance(down, ConnectionEvent)
    assert not down.up
    assert "no connection to libvirtd" in down.why
    await hypervisor.close()


def test_callbacks_build_port_events() -> None:
    connection = libvirt.open("test:///default")
    domain = connection.lookupByUUIDString(UUID)
    seen: list[Event] = []
    callbacks = dict(_subscriptions(seen.append))
    callbacks[libvirt.VIR_DOMAIN_EVENT_ID_AGENT_LIFECYCLE](
        connection, domain, libvirt.VIR_CONNECT_DOMAIN_EVENT_AGENT_LIFECYCLE_STATE_CONNECTED, 0, None
    )
    callbacks[libvirt.VIR_DOMAIN_EVENT_ID_AGENT_LIFECYCLE](
        connection, domain, libvirt.VIR_CONNECT_DOMAIN_EVENT_AGENT_LIFECYCLE_STATE_DISCONNECTED, 0, None
    )
    callbacks[libvirt.VIR_DOMAIN_EVENT_ID_IO_ERROR_REASON](
        connection, domain, "/a", "virtio-disk0", libvirt.VIR_DOMAIN_EVENT_IO_ERROR_PAUSE, "enospc", None
    )
    callbacks[libvirt.VIR_DOMAIN_EVENT_ID_LIFECYCLE](
        connection,
        domain,
        libvirt.VIR_DOMAIN_EVENT_STOPPED,
        libvirt.VIR_DOMAIN_EVENT_STOPPED_MIGRATED,
        None,
    )
    callbacks[libvirt.VIR_DOMAIN_EVENT_ID_MEMORY_DEVICE_SIZE_CHANGE](
        connection, domain, "ua-memory", 4 * 2**20, None
    )
    callbacks[libvirt.VIR_DOMAIN_EVENT_ID_DEVICE_REMOVED](connection, domain, "ua-one", None)
    callbacks[libvirt.VIR_DOMAIN_EVENT_ID_DEVICE_REMOVAL_FAILED](connection, domain, "ua-two", None)
    assert seen == [
        AgentLifecycleEvent(UUID, True),
        AgentLifecycleEvent(UUID, False),
        IoErrorEvent(UUID, "virtio-disk0", "pause", "enospc"),
        LifecycleEvent(UUID, "test", "stopped", "migrated"),
        MemoryDeviceEvent(UUID, "ua-memory", 4 * 2**20),
        DeviceRemovedEvent(UUID, "ua-one"),
        DeviceKeptEvent(UUID, "ua-two"),
    ]
    connection.close()
