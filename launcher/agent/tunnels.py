# SPDX-License-Identifier: Apache-2.0
"""Connections of callers to guests: to a port, to the screen, to a slot for a USB device.

Each ends with its guest. There are limits: a connection holds a descriptor of the agent's.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final

from launcher.agent import lifecycle
from launcher.agent.instances import Instances
from launcher.agent.machine import Machine, Services
from launcher.agent.reach import Way, ways
from launcher.errors import Exhausted, TimedOut, Unavailable, WrongPhase
from launcher.host.duplex import Duplex
from launcher.network.dial import dial, dial_unix

CONNECT_TIMEOUT_S: Final = 10.0
PER_INSTANCE: Final = 64
PER_NODE: Final = 512
"""How many may be open at once."""
_LOOK_S: Final = 3600.0


class Tunnel:
    """An open connection to a guest that runs; implements ``agent.port.ByteStream``."""

    def __init__(self, duplex: Duplex, machine: Machine, closed: Callable[[], None]) -> None:
        self._duplex, self._machine, self._closed = duplex, machine, closed
        self._ended = False
        self._open = True
        self._watch = asyncio.create_task(self._until_the_guest_ends(), name="tunnel")

    async def read(self) -> bytes:
        """The next bytes of the guest; empty when it has said all. Raises Unavailable."""
        data = await self._duplex.read()
        if not data and self._ended:
            raise Unavailable(f"{self._machine.record.key} runs here no more")
        return data

    async def write(self, data: bytes) -> None:
        """Hand ``data`` to the guest, at its pace. Raises Unavailable."""
        await self._duplex.write(data)

    async def end(self) -> None:
        """Tell the guest that nothing more comes."""
        await self._duplex.end()

    async def close(self) -> None:
        """End the connection. Twice is fine."""
        if self._open:
            self._open = False
            self._closed()
            self._watch.cancel()
            await self._duplex.close()

    async def _until_the_guest_ends(self) -> None:
        # A socket keeps its network namespace: one that is left open would keep that of a guest that is gone.
        while runs(self._machine):
            try:
                await self._machine.until(lambda machine: not runs(machine), timeout_s=_LOOK_S)
            except TimedOut:
                continue
        self._ended = True
        await self._duplex.close()


class Tunnels:
    """All open connections of the node."""

    def __init__(self, services: Services, instances: Instances) -> None:
        self._services = services
        self._instances = instances
        self._open: Counter[str] = Counter()
        self._slots: set[str] = set()

    async def to_port(self, namespace: str, name: str, port: int) -> Tunnel:
        """Connect to a TCP port of the guest.

        Raises:
            NotFound, WrongPhase, Exhausted; Unavailable, HostUnsupported: it cannot be reached, and why.
        """
        machine = self._running(namespace, name)
        found = ways(machine.record, self._services.hub.get(machine.record.key))
        return await self._tunnel(machine, partial(_first, found, port))

    async def to_screen(self, namespace: str, name: str) -> Tunnel:
        """Connect to the VNC server of the guest's screen; raises as ``to_port``."""
        machine = self._running(namespace, name)
        graphics = machine.record.plan.devices.graphics
        if graphics is None:
            raise WrongPhase(
                f"{machine.record.key} has no screen",
                hint="autoattachGraphicsDevice is false, or a vGPU shows it",
            )
        connect = partial(dial_unix, graphics.socket, timeout_s=CONNECT_TIMEOUT_S, what="the screen")
        return await self._tunnel(machine, connect)

    async def to_usb(self, namespace: str, name: str) -> Tunnel:
        """Connect to a slot for a USB device that nobody uses; raises as ``to_port``."""
        machine = self._running(namespace, name)
        slots = [slot.socket for slot in machine.record.plan.devices.redirdevs]
        if not slots:
            hint = "set spec.domain.devices.clientPassthrough: {}"
            raise WrongPhase(f"{machine.record.key} has no slots for USB devices", hint=hint)
        slot = next((slot for slot in slots if slot not in self._slots), None)
        if slot is None:
            raise Exhausted("USB slots", f"all {len(slots)} slots of {machine.record.key} are in use")
        self._slots.add(slot)
        connect = partial(dial_unix, slot, timeout_s=CONNECT_TIMEOUT_S, what="the USB slot")
        return await self._tunnel(machine, connect, slot=slot)

    async def _tunnel(
        self, machine: Machine, connect: Callable[[], Awaitable[Duplex]], *, slot: str = ""
    ) -> Tunnel:
        uid = machine.record.uid

        def closed() -> None:
            self._open[uid] -= 1
            self._open += Counter()  # forgets those at nought
            self._slots.discard(slot)

        with ExitStack() as undo:
            self._open[uid] += 1
            undo.callback(closed)
            self._require_room(machine)
            tunnel = Tunnel(await connect(), machine, closed)
            undo.pop_all()
        return tunnel

    def _running(self, namespace: str, name: str) -> Machine:
        machine = self._instances.find(namespace, name)
        if not runs(machine):
            raise WrongPhase(f"{machine.record.key} does not run: it is {machine.record.phase}")
        return machine

    def _require_room(self, machine: Machine) -> None:
        """With the asker's counted: are there too many?"""
        if self._open[machine.record.uid] > PER_INSTANCE or self._open.total() > PER_NODE:
            raise Exhausted(
                "connections",
                f"at most {PER_INSTANCE} connections to an instance and {PER_NODE} to all are open at once",
                hint="close some",
            )


def runs(machine: Machine) -> bool:
    """Whether the guest runs here, as far as it is known."""
    return not machine.gone and not machine.record.incoming and lifecycle.alive(machine.observed)


async def _first(found: tuple[Way, ...], port: int) -> Duplex:
    """By the first way that leads there within the time; what the first one met is what is told."""
    first: Unavailable | None = None
    end = asyncio.get_running_loop().time() + CONNECT_TIMEOUT_S
    for number, way in enumerate(found):
        left_s = end - asyncio.get_running_loop().time()
        share_s = max(left_s / (len(found) - number), 0.1)
        try:
            return await dial(
                Path(way.namespace) if way.namespace else None, way.address, port, timeout_s=share_s
            )
        except Unavailable as error:
            first = first or error
    raise first or Unavailable("no way to the guest is known")
