# SPDX-License-Identifier: Apache-2.0
"""The connection to libvirtd is lost, absent and found again; events flow again each time."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from hypervisor_guests import Recorder, connected, domain_xml, guest, new_uuid

from launcher.errors import HypervisorUnavailable
from launcher.hypervisor.driver import LibvirtHypervisor
from launcher.hypervisor.port import ConnectionEvent, DomainState
from launcher.lab.lab import Lab
from launcher.lab.node import Node

pytestmark = pytest.mark.node


async def test_libvirtd_is_killed_and_comes_back(fresh_lab: Callable[..., Lab]) -> None:
    node = fresh_lab("a").node("a")
    async with (
        connected(node.libvirt_uri) as (hypervisor, recorder),
        guest(hypervisor, domain_xml(new_uuid())) as uuid,
    ):
        await asyncio.to_thread(node.stop_libvirtd, signal.SIGKILL)
        down = await recorder.wait(ConnectionEvent, lambda event: not event.up)
        assert down.why
        assert not hypervisor.connected
        with pytest.raises(HypervisorUnavailable):
            await hypervisor.list_domains()
        seen = len(recorder.events)
        await asyncio.to_thread(node.start_libvirtd)
        await recorder.wait(ConnectionEvent, lambda event: event.up, after=seen)
        assert hypervisor.connected
        assert (await hypervisor.domain(uuid)).state is DomainState.PAUSED
        await hypervisor.resume(uuid)
        await recorder.lifecycle(uuid, "resumed", "unpaused", after=seen)
        resumed = [event for event in recorder.events[seen:] if getattr(event, "event", "") == "resumed"]
        assert len(resumed) == 1, "registered once"
        ups = [event.up for event in recorder.events if isinstance(event, ConnectionEvent)]
        assert ups == [True, False, True]


async def test_calls_in_progress_end_when_libvirtd_dies(fresh_lab: Callable[..., Lab]) -> None:
    node = fresh_lab("a").node("a")
    async with (
        connected(node.libvirt_uri) as (hypervisor, recorder),
        guest(hypervisor, domain_xml(new_uuid(), name="held")) as uuid,
    ):
        qemu = node.run("cat", "/run/libvirt/qemu/held.pid").strip()
        node.run("kill", "-STOP", qemu)
        waiting = asyncio.create_task(hypervisor.resume(uuid))
        await _until_job_is_held(node, "held")
        await asyncio.to_thread(node.stop_libvirtd, signal.SIGKILL)
        with pytest.raises(HypervisorUnavailable):
            await waiting
        node.run("kill", "-CONT", qemu)
        await asyncio.to_thread(node.start_libvirtd)
        await recorder.wait(ConnectionEvent, lambda event: event.up, after=2)


async def _until_job_is_held(node: Node, name: str) -> None:
    """Until libvirtd waits for the monitor of a domain whose QEMU is stopped."""
    async with asyncio.timeout(30):
        while "occupied" not in await asyncio.to_thread(node.run, "virsh", "domcontrol", name):
            await asyncio.sleep(0.05)


async def test_an_absent_libvirtd_is_a_state(fresh_lab: Callable[..., Lab]) -> None:
    lab = fresh_lab("a")
    node = lab.node("a")
    await asyncio.to_thread(node.stop_libvirtd)
    hypervisor, recorder = LibvirtHypervisor(node.libvirt_uri), Recorder()
    unsubscribe = hypervisor.subscribe(recorder)
    with pytest.raises(HypervisorUnavailable, match="not started"):
        await hypervisor.list_domains()
    await hypervisor.start()
    down = await recorder.wait(ConnectionEvent)
    assert not down.up
    assert "No such file" in down.why or "refused" in down.why
    with pytest.raises(HypervisorUnavailable):
        await hypervisor.host_texts()
    await asyncio.to_thread(node.start_libvirtd)
    await recorder.wait(ConnectionEvent, lambda event: event.up)
    assert await hypervisor.list_domains() == ()
    assert [type(event) for event in recorder.events] == [ConnectionEvent, ConnectionEvent]
    unsubscribe()
    uuid = await hypervisor.define(domain_xml(new_uuid()))
    await hypervisor.undefine(uuid)
    await hypervisor.close()
    assert len(recorder.events) == 2, "unsubscribed"
    with pytest.raises(HypervisorUnavailable, match="closed"):
        await hypervisor.list_domains()


async def test_a_silent_libvirtd_is_reported_and_then_used(node_a: Node, tmp_path: Path) -> None:
    """The socket takes the connection, but nobody answers; later libvirtd is there."""
    address = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(address))
        silent.listen()
        uri = f"qemu+unix:///system?socket={address}"
        hypervisor, recorder = LibvirtHypervisor(uri, call_timeout_s=0.3), Recorder()
        hypervisor.subscribe(recorder)
        await hypervisor.start()
        down = await recorder.wait(ConnectionEvent)
        assert not down.up
        assert "has not answered" in down.why
        address.unlink()
        address.symlink_to(node_a.layout.libvirt_socket)
    await recorder.wait(ConnectionEvent, lambda event: event.up)
    await hypervisor.list_domains()
    await hypervisor.close()


async def test_an_agent_that_ends_does_not_wait_for_a_libvirtd_that_stands_still(node_a: Node) -> None:
    """Its connections would count as lost after 20 s; that long the node would be without an agent."""
    hypervisor, recorder = LibvirtHypervisor(node_a.libvirt_uri), Recorder()
    hypervisor.subscribe(recorder)
    await hypervisor.start()
    await recorder.wait(ConnectionEvent, lambda event: event.up)
    assert node_a.libvirtd_pid is not None
    os.kill(node_a.libvirtd_pid, signal.SIGSTOP)
    try:
        async with asyncio.timeout(10):
            await hypervisor.close()
    finally:
        os.kill(node_a.libvirtd_pid, signal.SIGCONT)
