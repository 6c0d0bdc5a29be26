# SPDX-License-Identifier: Apache-2.0
"""Domains whose QEMU does not answer: their calls end at a deadline and delay nobody else."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack

import pytest
from hypervisor_guests import connected, domain_xml, guest, new_uuid

from launcher.errors import Conflict, TimedOut
from launcher.hypervisor.port import DomainState
from launcher.lab.node import Node

pytestmark = pytest.mark.node

STUCK = 3
CALL_TIMEOUT_S = 6.0


async def test_hung_domains_delay_nobody(node_a: Node) -> None:
    async with AsyncExitStack() as stack:
        hypervisor, _ = await stack.enter_async_context(
            connected(node_a.libvirt_uri, call_timeout_s=CALL_TIMEOUT_S)
        )
        names = [f"stuck-{number}" for number in range(STUCK)]
        stuck = [
            await stack.enter_async_context(guest(hypervisor, domain_xml(new_uuid(), name=name)))
            for name in names
        ]
        healthy = await stack.enter_async_context(guest(hypervisor, domain_xml(new_uuid())))
        for name in names:
            node_a.run("kill", "-STOP", node_a.run("cat", f"/run/libvirt/qemu/{name}.pid").strip())

        # more calls than the lane has threads, all for domains that hang
        hung = [asyncio.create_task(hypervisor.resume(uuid)) for uuid in stuck for _ in range(4)]
        hung += [asyncio.create_task(hypervisor.set_max_downtime(uuid, 100)) for uuid in stuck[:1]]
        await asyncio.sleep(0)  # let them enter the lanes

        began = time.monotonic()
        await hypervisor.resume(healthy)
        await hypervisor.suspend(healthy)
        await hypervisor.set_max_downtime(healthy, 200)
        assert (await hypervisor.job_stats(healthy)).kind == "none"
        listed = {record.uuid: record.state for record in await hypervisor.list_domains()}
        assert listed[healthy] is DomainState.PAUSED
        assert set(stuck) <= set(listed)
        assert (await hypervisor.domain(stuck[0])).state is DomainState.PAUSED
        assert time.monotonic() - began < CALL_TIMEOUT_S, "no healthy call waited for a hung one"

        outcomes = await asyncio.gather(*hung, return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {TimedOut}
        began = time.monotonic()
        with pytest.raises(Conflict, match="have not returned"):
            await hypervisor.resume(stuck[0])
        assert time.monotonic() - began < CALL_TIMEOUT_S / 2, "refused at once"
        assert hypervisor.connected, "keep-alive still gets through"

        await hypervisor.destroy(stuck[0], graceful=False)
        assert (await hypervisor.domain(stuck[0])).state is DomainState.SHUTOFF
        await hypervisor.create(stuck[0], paused=True)
        await hypervisor.resume(stuck[0])
        for name in names[1:]:
            node_a.run("kill", "-CONT", node_a.run("cat", f"/run/libvirt/qemu/{name}.pid").strip())
